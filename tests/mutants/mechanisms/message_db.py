"""Promise 7: Message DB's clients work on Penstock, and Penstock on Message DB."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

STORE = "database/sql/message_store"
CATEGORY_READ = "database/sql/penstock/06_category_read.sql"

CATALOG = "tests/compatibility/test_catalog.py::test_the_catalog_says_the_same"
SAME_CALLS = "tests/compatibility/test_side_by_side.py::test_the_same_calls_have_the_same_answers"
RANDOM_CALLS = "tests/compatibility/test_side_by_side.py::test_random_calls_have_the_same_answers"
DIFFERENCES = (
    "tests/compatibility/test_side_by_side.py"
    "::test_what_differs_on_purpose_differs_as_it_is_written_down"
)
NAMES_TESTS = "tests/message/test_names_on_server.py"
BESIDE_TESTS = "tests/database/test_install_on_message_db.py"

CLIENTS = (
    Mutant(
        "argument-names",
        "If an argument had another name",
        (
            Edit(
                f"{STORE}/07_stream_reads.sql",
                "  type varchar default null\n",
                "  message_type varchar default null\n",
            ),
            Edit(
                f"{STORE}/07_stream_reads.sql",
                "get_last_stream_message.type",
                "get_last_stream_message.message_type",
                times=2,
            ),
        ),
        (f"{CATALOG}[functions]", f"{SAME_CALLS}[get_last_stream_message]"),
    ),
    Mutant(
        "error-texts",
        "If an error had another text",
        (
            Edit(
                f"{STORE}/06_write_message.sql",
                "'Wrong expected version: % (Stream: %, Stream Version: %)'",
                "'Expected version %, stream % has version %'",
            ),
        ),
        (
            f"{SAME_CALLS}[write_message: wrong expected version]",
            RANDOM_CALLS,
            "tests/compatibility/test_message_db_py.py"
            "::test_a_wrong_expected_version_is_reported_as_ever",
        ),
    ),
    Mutant(
        "default-batch",
        "If NULL did not stand for the default of an argument",
        (
            Edit(
                CATEGORY_READ,
                "first constant bigint := coalesce(position, 1);",
                "first constant bigint := position;",
            ),
        ),
        (f"{SAME_CALLS}[get_category_messages]",),
    ),
    Mutant(
        "acquire-lock",
        "If Message DB's lock kept nobody out",
        (
            Edit(
                f"{STORE}/05_acquire_lock.sql",
                "  perform pg_advisory_xact_lock(category_key);\n",
                "",
            ),
        ),
        (f"{SAME_CALLS}[acquire_lock keeps writers of the category out]",),
    ),
    Mutant(
        "sql-condition",
        "If SQL from a caller were run unasked",
        (
            Edit(
                CATEGORY_READ,
                "if coalesce(current_setting('message_store.sql_condition', true), 'off') "
                "in ('off', '') then",
                "if false then",
            ),
        ),
        (
            f"{SAME_CALLS}[get_stream_messages: condition]",
            f"{SAME_CALLS}[get_category_messages: condition]",
        ),
    ),
    Mutant(
        "privileges",
        "If the role of services could change messages",
        (
            Edit(
                f"{STORE}/10_privileges.sql",
                "grant select, insert on message_store.messages to message_store;",
                "grant select, insert, update, delete on message_store.messages to message_store;",
            ),
        ),
        (
            f"{SAME_CALLS}[what the role may not do]",
            f"{CATALOG}[privileges on table, sequence and views]",
        ),
    ),
    Mutant(
        "complete-categories",
        "If Message DB's own function read past a writer that is open",
        (
            Edit(
                f"{STORE}/08_category_read.sql",
                "      get_category_messages.condition\n",
                "      get_category_messages.condition,\n      penstock.last_position()\n",
            ),
        ),
        (
            f"{DIFFERENCES}[A category read ends before the first position at which an open"
            " transaction may write.]",
        ),
    ),
)

GROUPS = (
    Mutant(
        "groups-by-cardinal-id",
        "If groups were assigned by the cardinal id as the specification cuts it",
        (
            Edit(
                CATEGORY_READ,
                "split_part(message_store.id(stream_name), '+', 1)::varchar",
                "message_store.cardinal_id(stream_name)",
            ),
        ),
        (
            f"{NAMES_TESTS}::test_a_group_is_assigned_as_message_db_assigns_it",
            f"{NAMES_TESTS}::test_a_group_can_move_between_the_two",
            "tests/consumers/test_consumer_groups.py"
            "::test_each_message_goes_to_one_member_in_order_as_message_db_assigns_it",
        ),
    ),
    Mutant(
        "groups-in-python",
        "If Python assigned groups by the cardinal id as the specification cuts it",
        (
            Edit(
                "message/names.py",
                'return abs(hash_64(whole.partition("+")[0])) % size',
                'return abs(hash_64(cardinal_id(stream_name) or "")) % size',
            ),
        ),
        (
            f"{NAMES_TESTS}::test_a_group_can_move_between_the_two",
            "tests/message/test_names.py::TestGroupMember::test_hyphens_do_not_shorten_the_id",
        ),
    ),
    Mutant(
        "hash-on-the-server",
        "If the hash of a name were another than Message DB's",
        (
            Edit(
                f"{STORE}/02_names.sql",
                "('x' || left(md5(value), 16))::bit(64)::bigint",
                "('x' || right(md5(value), 16))::bit(64)::bigint",
            ),
        ),
        (
            f"{SAME_CALLS}[names]",
            f"{NAMES_TESTS}::test_our_functions_on_the_server_are_those_in_python",
            f"{NAMES_TESTS}::test_a_group_can_move_between_the_two",
        ),
    ),
    Mutant(
        "hash-in-python",
        "If Python's hash had no sign",
        (
            Edit(
                "message/names.py",
                "int.from_bytes(digest[:8], signed=True)",
                "int.from_bytes(digest[:8], signed=False)",
            ),
        ),
        (
            "tests/message/test_names.py::test_hash_64_is_the_server_s",
            f"{NAMES_TESTS}::test_genuine_functions_are_those_in_python",
        ),
    ),
)

BESIDE = (
    Mutant(
        "genuine-left-alone",
        "If installing changed what a genuine Message DB has",
        (
            Edit(
                "database/install.py",
                "    ours = take_over or found.has_our_functions or not found.has_message_store\n",
                "    ours = True\n",
            ),
        ),
        (
            f"{BESIDE_TESTS}::test_functions_of_a_genuine_message_db_stay_as_they_are",
            f"{BESIDE_TESTS}::test_message_dbs_own_installer_puts_its_functions_back",
        ),
    ),
    Mutant(
        "taken-over-index",
        "If clients that are connected kept the indexes of before a takeover",
        (
            Edit(
                f"{STORE}/02_names.sql",
                "    execute format('alter index %s reset (parallel_workers)', index);",
                "    perform index;",
            ),
        ),
        (f"{BESIDE_TESTS}::test_a_client_that_is_connected_goes_on_after_taking_over[beside]",),
    ),
    Mutant(
        "another-message-db",
        "If Penstock went to work on a Message DB that it does not know",
        (
            Edit(
                "database/edition.py",
                "    if numbers[:1] != [1] or numbers[1:2] < [3]:",
                "    if False:",
            ),
        ),
        ("tests/database/test_install_refused.py::test_another_message_db_is_refused",),
    ),
    Mutant(
        "newer-sql",
        "If an older package put its SQL over newer SQL",
        (
            Edit(
                "database/install.py",
                "    if last.version > SCHEMA_VERSION or unknown:",
                "    if False:",
            ),
        ),
        ("tests/database/test_install_refused.py::test_a_newer_installation_is_refused",),
    ),
    Mutant(
        "genuine-retries",
        "If a repeated write on a genuine Message DB did not look for its id",
        (
            Edit(
                "log/write.py",
                """            select coalesce(
              (select m.position from message_store.messages m
               where m.id = %s::uuid and m.stream_name = %s),
""",
                """            select coalesce(
              (select m.position from message_store.messages m
               where m.id = %s::uuid and m.stream_name = %s and false),
""",
            ),
        ),
        (
            "tests/log/test_write.py::TestIds"
            "::test_a_retry_of_a_successful_write_returns_the_first_position",
            "tests/database/test_transactions.py::TestIdempotency"
            "::test_a_retry_after_a_commit_finds_the_first_write",
        ),
    ),
    Mutant(
        "genuine-lock",
        "If a write on a genuine Message DB looked for its id before it has the lock",
        (
            Edit(
                "log/write.py",
                "        statements = (lock, write)\n",
                "        statements = (write,)\n",
            ),
        ),
        (
            "tests/log/test_write.py::TestIds"
            "::test_a_retry_that_waits_for_the_first_write_returns_its_position",
        ),
    ),
    Mutant(
        "installing-alone",
        "If two could install at once",
        (
            Edit(
                "database/install.py",
                '    connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))\n',
                "",
            ),
        ),
        ("tests/database/test_install.py::test_threads_that_install_at_once_install_once",),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*CLIENTS, *GROUPS, *BESIDE)
