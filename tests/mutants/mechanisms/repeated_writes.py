"""Promise 2, of a retry: what is repeated with its id is written once, whole, where it was."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

WRITE = "database/sql/message_store/06_write_message.sql"
WRITE_MANY = "database/sql/penstock/05_write_messages.sql"
APPEND = "database/sql/penstock/32_append.sql"
APPEND_ONE = "database/sql/penstock/32_append_one.sql"
APPENDING = "tests/log/test_appending.py"
DECIDED = "tests/groups/test_decided.py"
GUARDS = "tests/log/test_guards.py"
TRANSACTIONS = "tests/database/test_transactions.py"
WRITES = "tests/log/test_write.py"
WRITES_TO_MANY = "tests/log/test_write_many.py"
UNDER_WAY = (
    f"{WRITES}::TestIds::test_a_retry_while_the_first_write_is_under_way_returns_the_first_position"
)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "repeated-id",
        "If a write that is repeated with its id were an error",
        (Edit(WRITE, "\n    on conflict (id) do nothing;", ";"),),
        (
            f"{UNDER_WAY}[penstock-write_one]",
            f"{WRITES}::TestIds::test_a_retry_changes_nothing_of_the_first_message[penstock]",
            f"{TRANSACTIONS}::TestIdempotency"
            "::test_an_id_repeated_within_a_transaction_is_written_once[penstock]",
            f"{WRITES}::TestIds::test_writers_that_race_with_one_id_write_one_message[penstock]",
        ),
    ),
    Mutant(
        "genuine-lock-of-a-write",
        "If a write on a genuine Message DB looked for its id before the category is locked",
        (
            Edit(
                "log/write.py",
                "        statements = (lock, write)\n",
                "        statements = (write,)\n",
            ),
        ),
        (f"{UNDER_WAY}[genuine-write_one]",),
    ),
    Mutant(
        "genuine-lock-of-a-batch",
        "If a batch on a genuine Message DB looked for its ids before the category is locked",
        (
            Edit(
                "log/write.py",
                'Operation("write_messages", many.statements, only_value',
                'Operation("write_messages", many.statements[-1:], only_value',
            ),
        ),
        (f"{UNDER_WAY}[genuine-write_several]",),
    ),
    Mutant(
        "genuine-locks-of-many",
        "If messages to many streams of a genuine Message DB did not lock their categories first",
        (
            Edit(
                "log/write.py",
                "    statements = (*lock.statements, write)\n",
                "    statements = (write,)\n",
            ),
        ),
        (f"{UNDER_WAY}[genuine-write_to_many]",),
    ),
    Mutant(
        "repeated-id-past-the-version",
        "If a write that is repeated were refused once its stream has moved on",
        (
            Edit(
                WRITE,
                "where m.id = write_message.id::uuid;",
                "where m.id = write_message.id::uuid and (write_message.expected_version is null"
                " or write_message.expected_version = stream_version);",
            ),
        ),
        (
            f"{WRITES}::TestIds"
            "::test_a_retry_of_a_successful_write_returns_the_first_position[penstock]",
            f"{TRANSACTIONS}::TestIdempotency"
            "::test_a_retry_after_a_commit_finds_the_first_write[penstock]",
        ),
    ),
    Mutant(
        "id-of-another-stream",
        "If an id of another stream were taken for a retry",
        (
            Edit(
                WRITE,
                "if written.stream_name = write_message.stream_name then",
                "if written.stream_name is not null then",
            ),
        ),
        (f"{WRITES}::TestIds::test_an_id_of_another_stream_is_refused[penstock]",),
    ),
    Mutant(
        "repeated-ids-of-a-batch",
        "If a batch that is repeated with its ids were an error",
        (
            Edit(
                WRITE_MANY,
                "if written.in_stream = cardinality(write_messages.ids) then",
                "if false then",
            ),
        ),
        (
            f"{WRITES}::TestSeveralMessages::test_written_again_return_the_first_positions[penstock--1]",
            f"{TRANSACTIONS}::TestIdempotency"
            "::test_a_retry_after_a_commit_finds_the_first_write[penstock]",
        ),
    ),
    Mutant(
        "part-of-a-batch",
        "If a batch of which some ids exist were written in part",
        (
            Edit(
                WRITE_MANY,
                "if written.in_stream = cardinality(write_messages.ids) then\n"
                "    return written.positions;\n"
                "  elsif inserted is not null then\n"
                "    raise exception using\n      errcode = 'PS002',",
                "if written.in_stream = cardinality(write_messages.ids) then\n"
                "    return written.positions;\n"
                "  elsif inserted is not null then\n"
                "    return written.positions;\n"
                "    raise exception using\n      errcode = 'PS002',",
            ),
        ),
        (
            f"{WRITES}::TestSeveralMessages"
            "::test_of_which_one_exists_already_are_none_of_them_written[penstock-0]",
        ),
    ),
    Mutant(
        "repeated-ids-of-many",
        "If messages to many streams that are repeated were an error",
        (Edit(WRITE_MANY, "if written.in_stream = cardinality(ids) then", "if false then"),),
        (
            f"{WRITES_TO_MANY}"
            "::test_a_retry_returns_the_first_positions_whatever_the_versions[penstock]",
        ),
    ),
    Mutant(
        "part-of-many",
        "If messages to many streams, of which some ids exist, were written in part",
        (
            Edit(
                WRITE_MANY,
                "if written.in_stream = cardinality(ids) then\n"
                "    return written.positions;\n"
                "  elsif inserted is not null then\n"
                "    raise exception using\n      errcode = 'PS002',",
                "if written.in_stream = cardinality(ids) then\n"
                "    return written.positions;\n"
                "  elsif inserted is not null then\n"
                "    return written.positions;\n"
                "    raise exception using\n      errcode = 'PS002',",
            ),
        ),
        (
            f"{WRITES_TO_MANY}::test_a_batch_of_which_some_ids_exist_is_refused[penstock-a-1]",
            f"{WRITES_TO_MANY}::test_an_id_in_another_stream_is_not_taken_for_a_retry[penstock]",
        ),
    ),
    Mutant(
        "repeated-append",
        "If an append that is repeated were judged by a guard or a version that no longer holds",
        (
            Edit(
                APPEND,
                "    positions := penstock.appended_before(append.stream_name, append.ids, "
                "append.types);\n",
                "",
            ),
        ),
        (
            f"{DECIDED}::test_a_retry_of_an_append_after_a_lost_reply_returns_the_first_result",
            f"{APPENDING}::test_a_retry_returns_the_first_result_where_the_version_no_longer_holds",
        ),
    ),
    Mutant(
        "append-while-repeated",
        "If an append that is repeated while the first is under way were an error",
        (Edit(APPEND, "    on conflict (id) do nothing\n", ""),),
        (
            f"{GUARDS}"
            "::test_a_retry_while_the_first_append_is_under_way_returns_the_first_result[2]",
        ),
    ),
    Mutant(
        "append-of-one-while-repeated",
        "If an append of one message were an error while the first is under way",
        (Edit(APPEND_ONE, "    on conflict (id) do nothing\n", ""),),
        (
            f"{GUARDS}"
            "::test_a_retry_while_the_first_append_is_under_way_returns_the_first_result[1]",
        ),
    ),
    Mutant(
        "part-of-an-append",
        "If an append of which some ids exist were made in part",
        (
            Edit(
                APPEND,
                "limit 1;\n  raise exception using errcode = 'PS002',",
                "limit 1;\n  return;\n  raise exception using errcode = 'PS002',",
            ),
        ),
        (f"{GUARDS}::test_a_retry_of_a_part_of_an_append_is_refused[Message]",),
    ),
    Mutant(
        "id-elsewhere-of-an-append",
        "If an id in another stream were taken for a repeated append",
        (
            Edit(
                APPEND,
                "  if present.count > 0 and present.in_place < cardinality(ids) then\n"
                "    raise exception using errcode = 'PS002',",
                "  if false then\n    raise exception using errcode = 'PS002',",
            ),
        ),
        (
            f"{GUARDS}::test_an_id_that_exists_in_another_stream_is_refused",
            f"{APPENDING}::test_an_id_that_exists_is_reported_before_the_version_and_the_guard",
        ),
    ),
)
