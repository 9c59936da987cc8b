"""Promise 3: independent writers do not wait for each other, and no two wait for each other."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

LOCKS = "database/sql/penstock/04_locks.sql"
WRITE = "database/sql/message_store/06_write_message.sql"
WRITE_MANY = "database/sql/penstock/05_write_messages.sql"
BOUNDARIES = "database/sql/penstock/31_boundaries.sql"
APPEND = "database/sql/penstock/32_append.sql"
APPEND_ONE = "database/sql/penstock/32_append_one.sql"

FLAT = "tests/promises/test_flat_guards.py"
GUARDS = "tests/log/test_guards.py"
LOCK_COUNT = "tests/log/test_lock_count.py"
LOCK_TESTS = "tests/log/test_locks.py"
WRITERS = f"{LOCK_TESTS}::TestWriters"
MANY_STREAMS = f"{LOCK_TESTS}::TestATransactionOfManyStreams"
LOCK_CATEGORIES = f"{LOCK_TESTS}::TestLockCategories"
DIFFERENT_STREAMS = (
    f"{WRITERS}::test_of_different_streams_of_a_category_do_not_wait_whichever_way_they_write"
)
OWN_STREAMS = f"{WRITERS}::test_of_messages_in_streams_of_their_own_do_not_wait"
SAME_ATTRIBUTES = (
    f"{GUARDS}::test_writers_of_messages_with_the_same_attributes_do_not_wait_for_each_other"
)
DISJOINT = f"{GUARDS}::test_decisions_on_disjoint_boundaries_do_not_wait_for_each_other"
BULKS = f"{GUARDS}::test_bulk_writers_of_different_types_do_not_wait_for_each_other"
OPPOSITE = f"{GUARDS}::test_decisions_on_the_same_attributes_in_opposite_orders_do_not_deadlock"

ALONE = (
    Mutant(
        "category-alone-for-a-write",
        "If a write took its category alone, as Message DB's does",
        (
            Edit(
                LOCKS,
                "when pg_advisory_xact_lock_shared(\n",
                "when pg_advisory_xact_lock(\n",
            ),
        ),
        (
            f"{WRITERS}::test_of_different_streams_of_a_category_do_not_wait",
            f"{WRITERS}::test_of_a_category_stream_and_of_a_stream_in_it_do_not_wait",
            "tests/log/test_write.py::TestWritersSideBySide"
            "::test_to_two_streams_of_a_category_do_not_wait_for_each_other",
            "tests/queues/test_session_faults.py"
            "::test_a_record_that_is_not_committed_yet_holds_back_no_other_queue",
        ),
    ),
    Mutant(
        "category-alone-for-a-batch",
        "If a batch, or an append to a stream, took its category alone",
        (
            Edit(
                LOCKS,
                "done := pg_advisory_xact_lock_shared("
                "message_store.hash_64(message_store.category(stream_name)));",
                "done := pg_advisory_xact_lock("
                "message_store.hash_64(message_store.category(stream_name)));",
            ),
        ),
        tuple(f"{DIFFERENT_STREAMS}[{way}]" for way in ("write_messages", "append_one", "append")),
    ),
    Mutant(
        "category-alone-for-an-append-of-one",
        "If an append of one message took its category alone",
        (
            Edit(
                APPEND_ONE,
                "      done := pg_advisory_xact_lock_shared(\n",
                "      done := pg_advisory_xact_lock(\n",
            ),
        ),
        (f"{OWN_STREAMS}[append_one]",),
    ),
    Mutant(
        "category-alone-for-an-append",
        "If an append took its category alone",
        (
            Edit(
                APPEND,
                "done := pg_advisory_xact_lock_shared("
                "message_store.hash_64(message_store.category(types[1])));",
                "done := pg_advisory_xact_lock("
                "message_store.hash_64(message_store.category(types[1])));",
            ),
        ),
        (f"{OWN_STREAMS}[append]",),
    ),
    Mutant(
        "categories-alone-for-an-append",
        "If an append of several types took their categories alone",
        (
            Edit(
                APPEND,
                "      order by key)\n    loop\n      done := pg_advisory_xact_lock_shared(key);",
                "      order by key)\n    loop\n      done := pg_advisory_xact_lock(key);",
            ),
        ),
        (f"{OWN_STREAMS}[append of two types]",),
    ),
    Mutant(
        "attributes-alone-for-an-append-of-one",
        "If an append of one message took its attributes alone",
        (
            Edit(
                APPEND_ONE,
                "else pg_advisory_xact_lock_shared(key) end;",
                "else pg_advisory_xact_lock(key) end;",
            ),
        ),
        (f"{SAME_ATTRIBUTES}[write_alone]",),
    ),
    Mutant(
        "attributes-alone-for-an-append",
        "If an append took its attributes alone",
        (
            Edit(
                APPEND,
                "    if key <> all (exclusive) then\n"
                "      done := pg_advisory_xact_lock_shared(key);",
                "    if key <> all (exclusive) then\n      done := pg_advisory_xact_lock(key);",
            ),
        ),
        (f"{SAME_ATTRIBUTES}[write_a_batch]",),
    ),
    Mutant(
        "attributes-alone-for-a-plain-writer",
        "If whoever writes past Penstock took the attributes alone",
        (
            Edit(
                BOUNDARIES,
                "  foreach key in array keys loop\n"
                "    done := pg_advisory_xact_lock_shared(key);\n",
                "  foreach key in array keys loop\n    done := pg_advisory_xact_lock(key);\n",
            ),
        ),
        (f"{SAME_ATTRIBUTES}[insert_some]",),
    ),
    Mutant(
        "one-lock-for-all-decisions-of-one",
        "If every decision of one message took one lock for all",
        (
            Edit(
                APPEND_ONE,
                "lock table penstock.boundary_gate in row exclusive mode;",
                "lock table penstock.boundary_gate in share row exclusive mode;",
            ),
        ),
        (f"{DISJOINT}[1]",),
    ),
    Mutant(
        "one-lock-for-all-decisions",
        "If every decision of several messages took one lock for all",
        (
            Edit(
                APPEND,
                "lock table penstock.boundary_gate in row exclusive mode;",
                "lock table penstock.boundary_gate in share row exclusive mode;",
            ),
        ),
        (f"{DISJOINT}[2]",),
    ),
    Mutant(
        "gate-alone-for-a-bulk-append",
        "If a bulk append kept other bulk writers out",
        (
            Edit(
                APPEND,
                "lock table penstock.boundary_gate in share mode;",
                "lock table penstock.boundary_gate in exclusive mode;",
            ),
        ),
        (f"{BULKS}[write_a_bulk]",),
    ),
    Mutant(
        "gate-alone-for-a-bulk-insert",
        "If a bulk insert past Penstock kept other bulk writers out",
        (
            Edit(
                BOUNDARIES,
                "lock table penstock.boundary_gate in share mode;",
                "lock table penstock.boundary_gate in exclusive mode;",
            ),
        ),
        (f"{BULKS}[insert_a_bulk]",),
    ),
    Mutant(
        "conflict-by-one-attribute",
        "If a message with one attribute of a boundary, and not the other, were a conflict",
        (
            Edit(
                BOUNDARIES,
                "    where not seen @> i.global_position"
                " and penstock.carries(m.data, c.condition -> 'attributes')\n",
                "    where not seen @> i.global_position\n",
            ),
        ),
        (
            "tests/log/test_appending.py"
            "::test_messages_with_a_key_in_common_that_do_not_match_are_no_conflict",
        ),
    ),
)

RINGS = (
    Mutant(
        "order-of-categories",
        "If categories were locked in the order in which they are named",
        (
            Edit(
                LOCKS,
                "select distinct message_store.hash_64(c) as key, c as category"
                " from unnest(categories) c order by 1\n",
                "select message_store.hash_64(c) as key, c as category from unnest(categories) c\n",
            ),
        ),
        (f"{LOCK_CATEGORIES}::test_in_opposite_orders_take_turns",),
    ),
    Mutant(
        "order-of-attributes-for-one",
        "If a decision of one message locked attributes in the order in which they are named",
        (
            Edit(
                APPEND_ONE,
                "array(select distinct k from unnest(watched || keys) k order by k),",
                "array(select k from unnest(watched || keys) k),",
            ),
        ),
        (f"{OPPOSITE}[1]",),
    ),
    Mutant(
        "order-of-attributes",
        "If a decision locked attributes in the order in which they are named",
        (
            Edit(
                APPEND,
                "array(select distinct k from unnest(exclusive || shared) k order by k);",
                "array(select k from unnest(exclusive || shared) k);",
            ),
        ),
        (f"{OPPOSITE}[2]",),
    ),
    Mutant(
        "gate-in-two-steps",
        "If a bulk append under a guard took the gate in two steps",
        (
            Edit(
                APPEND,
                "lock table penstock.boundary_gate in share row exclusive mode;",
                "lock table penstock.boundary_gate in share mode;",
            ),
        ),
        (f"{GUARDS}::test_guarded_bulk_appends_that_waited_together_run_one_after_the_other",),
    ),
    Mutant(
        "upgrade-that-waits",
        "If a transaction that shares a category waited to have it alone",
        (
            Edit(
                LOCKS,
                "  if not pg_try_advisory_xact_lock(category_key) then",
                "  perform pg_advisory_xact_lock(category_key);\n  if false then",
            ),
        ),
        (
            f"{MANY_STREAMS}::test_does_not_deadlock_with_its_twin",
            f"{LOCK_CATEGORIES}::test_late_in_a_transaction_does_not_wait_but_fails",
        ),
    ),
    Mutant(
        "append-that-does-not-count",
        "If a transaction that has appended plain messages counted as one that holds no lock",
        (
            Edit(
                APPEND,
                "greatest(held + cardinality(wanted), 1)::text",
                "(held + cardinality(wanted))::text",
            ),
        ),
        (f"{LOCK_COUNT}::test_a_category_that_an_append_shares_is_not_waited_for_later[2]",),
    ),
    Mutant(
        "late-decision-that-waits",
        "If a decision late in a transaction waited for its locks",
        (Edit(APPEND, "    elsif may_wait then", "    elsif true then"),),
        (f"{GUARDS}::test_a_decision_late_in_a_transaction_does_not_wait_but_asks_to_be_retried",),
    ),
)

BOUNDED = (
    Mutant(
        "streams-without-end",
        "If a transaction took locks of streams without end",
        (
            Edit(
                LOCKS,
                "  if held >= 500 then\n    held := penstock.held_locks();\n",
                "  if false then\n    held := penstock.held_locks();\n",
            ),
        ),
        (
            f"{MANY_STREAMS}::test_holds_a_bounded_number_of_locks",
            f"{MANY_STREAMS}::test_has_the_category_to_itself",
            f"{LOCK_COUNT}::test_many_retries_hold_a_bounded_number_of_locks",
        ),
    ),
    Mutant(
        "retries-that-do-not-count",
        "If the locks of writes that find their message were not counted",
        (Edit(WRITE, "    perform penstock.count_lock();\n", ""),),
        (
            f"{LOCK_COUNT}::test_a_retry_that_finds_its_message_counts",
            f"{LOCK_COUNT}::test_many_retries_hold_a_bounded_number_of_locks",
        ),
    ),
    Mutant(
        "count-that-is-believed",
        "If a stream that is written again counted as another lock",
        (
            Edit(
                LOCKS,
                "  if held >= 500 then\n    select count(*) into held\n",
                "  if false then\n    select count(*) into held\n",
            ),
        ),
        (f"{MANY_STREAMS}::test_is_not_one_that_writes_to_one_stream_many_times",),
    ),
    Mutant(
        "many-streams-without-end",
        "If messages to many streams took a lock for each",
        (
            Edit(
                WRITE_MANY,
                "  if penstock.counted_locks() + cardinality(streams) >= 500\n",
                "  if false\n",
            ),
        ),
        (
            "tests/log/test_write_many.py"
            "::test_a_thousand_streams_lock_their_category_and_few_lock_themselves",
        ),
    ),
    Mutant(
        "attributes-without-end",
        "If an append took a lock for each of many attributes",
        (
            Edit(
                APPEND,
                "      gate := held + cardinality(wanted) >= 500 and shared <> '{}';\n",
                "",
            ),
        ),
        (f"{GUARDS}::test_a_bulk_append_takes_few_locks[400]",),
    ),
    Mutant(
        "guards-without-end",
        "If a guard took a lock for each of very many conditions",
        (
            Edit(
                APPEND,
                "  if held + cardinality(exclusive) >= 500 then\n    held := ",
                "  if false then\n    held := ",
            ),
        ),
        (
            f"{FLAT}::test_a_guard_of_many_conditions_takes_few_locks[in a batch]",
            f"{FLAT}::test_a_guard_of_many_conditions_takes_few_locks[locked first]",
        ),
    ),
    Mutant(
        "plain-writers-without-end",
        "If plain writers took a lock for each of very many attributes",
        (
            Edit(
                BOUNDARIES,
                "  if penstock.held_locks() + cardinality(keys) >= 500 then\n",
                "  if false then\n",
            ),
        ),
        (
            f"{GUARDS}"
            "::test_many_writes_past_penstock_in_one_transaction_take_a_bounded_number_of_locks",
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*ALONE, *RINGS, *BOUNDED)
