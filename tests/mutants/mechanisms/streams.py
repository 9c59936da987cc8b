"""Promise 2, of one stream: expected versions, and the locks they rest on."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

LOCKS = "database/sql/penstock/04_locks.sql"
WRITE = "database/sql/message_store/06_write_message.sql"
WRITE_MANY = "database/sql/penstock/05_write_messages.sql"
APPEND = "database/sql/penstock/32_append.sql"
APPEND_ONE = "database/sql/penstock/32_append_one.sql"
APPENDING = "tests/log/test_appending.py"
GUARDS = "tests/log/test_guards.py"
LOCK_TESTS = "tests/log/test_locks.py"
TRANSACTIONS = "tests/database/test_transactions.py"
WRITES = "tests/log/test_write.py"
WRITES_TO_MANY = "tests/log/test_write_many.py"
TAKE_TURNS = f"{LOCK_TESTS}::TestWriters::test_of_one_stream_take_turns_whichever_way_they_write"
BESIDE = f"{LOCK_TESTS}::TestBesideAGenuineMessageDb::test_appends_to_a_category_take_turns"
CATEGORY_LOCK = f"{LOCK_TESTS}::TestMessageDbsLock"

STREAMS = (
    Mutant(
        "stream-lock-of-a-write",
        "Without the lock of a stream, for one message",
        (
            Edit(
                LOCKS,
                "then pg_advisory_xact_lock(penstock.stream_key(stream_name))",
                "then null",
            ),
        ),
        (
            f"{WRITES}::TestExpectedVersion"
            "::test_is_checked_against_what_a_waiting_writer_finds_in_the_end[penstock]",
            f"{LOCK_TESTS}::TestWriters::test_get_the_positions_of_their_turns",
            f"{TRANSACTIONS}::TestConcurrency"
            "::test_a_writer_of_the_same_stream_waits_and_comes_after[penstock]",
        ),
    ),
    Mutant(
        "stream-lock-of-a-batch",
        "Without the lock of a stream, for a batch or an append",
        (
            Edit(
                LOCKS,
                "done := pg_advisory_xact_lock(penstock.stream_key(stream_name));",
                "",
            ),
        ),
        (
            f"{TAKE_TURNS}[write_messages]",
            f"{TAKE_TURNS}[append_one]",
            f"{TAKE_TURNS}[append]",
        ),
    ),
    Mutant(
        "stream-locks-of-many",
        "Without the locks of streams, for messages to many of them",
        (Edit(WRITE_MANY, "perform penstock.lock_streams(categories, streams);", "null;"),),
        (
            f"{TAKE_TURNS}[write_many]",
            f"{WRITES_TO_MANY}::test_two_that_write_the_same_streams_in_another_order_take_turns",
        ),
    ),
    Mutant(
        "version-before-the-lock",
        "If the version were looked up before the stream is locked",
        (
            Edit(
                WRITE,
                "  locked := penstock.lock_stream_for_write(write_message.stream_name);\n\n",
                "",
            ),
            Edit(
                WRITE,
                "    order by m.position desc limit 1), -1);\n",
                "    order by m.position desc limit 1), -1);\n"
                "  locked := penstock.lock_stream_for_write(write_message.stream_name);\n",
            ),
        ),
        (
            f"{WRITES}::TestExpectedVersion"
            "::test_is_checked_against_what_a_waiting_writer_finds_in_the_end[penstock]",
            f"{LOCK_TESTS}::TestWriters::test_get_the_positions_of_their_turns",
        ),
    ),
    Mutant(
        "version-of-a-batch-before-the-lock",
        "If the version were looked up before the stream is locked, for a batch",
        (
            Edit(
                WRITE_MANY,
                "  perform penstock.lock_stream(write_messages.stream_name);\n\n",
                "",
            ),
            Edit(
                WRITE_MANY,
                "message_store.stream_version(write_messages.stream_name), -1);\n",
                "message_store.stream_version(write_messages.stream_name), -1);\n"
                "  perform penstock.lock_stream(write_messages.stream_name);\n",
            ),
        ),
        (f"{TAKE_TURNS}[write_messages]",),
    ),
    Mutant(
        "expected-version",
        "Without the check of the expected version",
        (
            Edit(
                WRITE,
                "or write_message.expected_version = stream_version then\n    i",
                "or true then\n    i",
            ),
        ),
        (
            f"{WRITES}::TestExpectedVersion::test_of_a_stream_without_messages_is_minus_1[penstock]",
            f"{TRANSACTIONS}::TestConcurrency"
            "::test_a_version_is_checked_when_the_write_is_made[penstock]",
        ),
    ),
    Mutant(
        "expected-version-of-a-batch",
        "If a batch with a wrong expected version were not refused",
        (
            Edit(
                WRITE_MANY,
                "  else\n    raise exception using\n      errcode = 'PS001',",
                "  else\n    return '{}';\n    raise exception using\n      errcode = 'PS001',",
            ),
        ),
        (
            f"{WRITES}::TestSeveralMessages"
            "::test_with_a_wrong_expected_version_are_none_of_them_written[penstock]",
        ),
    ),
    Mutant(
        "expected-versions-of-many",
        "Without the check of the expected versions of many streams",
        (Edit(WRITE_MANY, "where e.expected <> v.version\n", "where false\n"),),
        (f"{WRITES_TO_MANY}::test_a_wrong_version_of_any_stream_stops_all_of_it[penstock]",),
    ),
    Mutant(
        "expected-version-of-an-append",
        "If an append with a wrong expected version were not refused",
        (
            Edit(
                APPEND,
                "  if expected_version <> stream_version then\n"
                "    raise exception using errcode = 'PS001',",
                "  if false then\n    raise exception using errcode = 'PS001',",
            ),
        ),
        (
            f"{GUARDS}::test_a_guard_and_an_expected_version_go_together",
            f"{APPENDING}::test_the_version_is_reported_before_the_guard",
        ),
    ),
    Mutant(
        "expected-version-of-an-append-of-one",
        "Without the check of the expected version, for an append of one message",
        (
            Edit(
                APPEND_ONE,
                "      exit usual when append_one.expected_version <> stream_version;\n",
                "",
            ),
        ),
        (f"{GUARDS}::test_a_guard_and_an_expected_version_go_together",),
    ),
)

CATEGORIES = (
    Mutant(
        "category-lock-of-a-write",
        "If a write did not share the lock of its category",
        (
            Edit(
                LOCKS,
                "when pg_advisory_xact_lock_shared(\n"
                "      message_store.hash_64(message_store.category(stream_name))) is not null\n",
                "when true\n",
            ),
        ),
        (
            f"{CATEGORY_LOCK}::test_keeps_our_writers_out_of_the_category",
            f"{CATEGORY_LOCK}::test_waits_for_our_writers",
            f"{LOCK_TESTS}::TestLockCategories::test_keeps_others_out_until_the_end",
        ),
    ),
    Mutant(
        "category-lock-of-a-batch",
        "If a batch, or an append to a stream, did not share the lock of its category",
        (
            Edit(
                LOCKS,
                "  done := pg_advisory_xact_lock_shared("
                "message_store.hash_64(message_store.category(stream_name)));\n",
                "",
            ),
        ),
        tuple(
            f"{CATEGORY_LOCK}::test_keeps_writers_out_whichever_way_they_write[{way}]"
            for way in ("write_messages", "append_one", "append")
        ),
    ),
    Mutant(
        "category-lock-of-an-append-of-one",
        "If an append of one message did not share the lock of its category",
        (
            Edit(
                APPEND_ONE,
                "      done := pg_advisory_xact_lock_shared(\n"
                "        message_store.hash_64(message_store.category(append_one.type)));\n",
                "      null;\n",
            ),
        ),
        (f"{CATEGORY_LOCK}::test_keeps_out_messages_in_streams_of_their_own[append_one]",),
    ),
    Mutant(
        "category-lock-of-an-append",
        "If an append did not share the lock of its category",
        (
            Edit(
                APPEND,
                "    done := pg_advisory_xact_lock_shared("
                "message_store.hash_64(message_store.category(types[1])));\n",
                "    null;\n",
            ),
        ),
        (f"{CATEGORY_LOCK}::test_keeps_out_messages_in_streams_of_their_own[append]",),
    ),
    Mutant(
        "category-locks-of-an-append",
        "If an append of several types did not share the locks of their categories",
        (
            Edit(
                APPEND,
                "      order by key)\n    loop\n      done := pg_advisory_xact_lock_shared(key);\n",
                "      order by key)\n    loop\n      null;\n",
            ),
        ),
        (f"{CATEGORY_LOCK}::test_keeps_out_messages_in_streams_of_their_own[append of two types]",),
    ),
    Mutant(
        "category-alone-beside-message-db",
        "If appends to streams shared their category beside a genuine Message DB",
        (
            Edit(
                APPEND,
                "  if stream_name is not null and whole_categories then\n",
                "  if false then\n",
            ),
        ),
        (f"{BESIDE}[named streams]",),
    ),
    Mutant(
        "own-category-alone-beside-message-db",
        "If appends shared their categories beside a genuine Message DB",
        (
            Edit(
                APPEND,
                "  elsif whole_categories or (gate and nothing_locked) then\n",
                "  elsif gate and nothing_locked then\n",
            ),
        ),
        (f"{BESIDE}[their own streams]",),
    ),
    Mutant(
        "message-dbs-category-lock",
        "If Message DB's lock of a category were none",
        (
            Edit(
                "database/sql/message_store/05_acquire_lock.sql",
                "perform pg_advisory_xact_lock(category_key);",
                "null;",
            ),
        ),
        (
            f"{CATEGORY_LOCK}::test_keeps_our_writers_out_of_the_category",
            f"{CATEGORY_LOCK}::test_waits_for_our_writers",
        ),
    ),
    Mutant(
        "lock-categories",
        "If a category that somebody locks were not locked",
        (Edit(LOCKS, "perform pg_advisory_xact_lock(wanted.key);", "null;"),),
        (f"{LOCK_TESTS}::TestLockCategories::test_keeps_others_out_until_the_end",),
    ),
    Mutant(
        "category-upgrade",
        "If a transaction of very many streams, or one that locks late, had no lock",
        (Edit(LOCKS, "if not pg_try_advisory_xact_lock(category_key) then", "if false then"),),
        (
            f"{LOCK_TESTS}::TestATransactionOfManyStreams::test_has_the_category_to_itself",
            f"{LOCK_TESTS}::TestATransactionOfManyStreams"
            "::test_fails_if_others_write_to_the_category",
        ),
    ),
    Mutant(
        "category-busy",
        "If a transaction of very many streams went on beside the writers of its category",
        (
            Edit(
                LOCKS,
                "    raise exception using\n      errcode = 'PS004',",
                "    return;\n    raise exception using\n      errcode = 'PS004',",
            ),
        ),
        (
            f"{LOCK_TESTS}::TestATransactionOfManyStreams"
            "::test_fails_if_others_write_to_the_category",
            f"{LOCK_TESTS}::TestLockCategories::test_late_in_a_transaction_does_not_wait_but_fails",
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*STREAMS, *CATEGORIES)
