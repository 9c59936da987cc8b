"""Promise 2, of a boundary: the locks of guards, and those of whoever writes."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

BOUNDARIES = "database/sql/penstock/31_boundaries.sql"
APPEND = "database/sql/penstock/32_append.sql"
APPEND_ONE = "database/sql/penstock/32_append_one.sql"
FLAT = "tests/promises/test_flat_guards.py"
GUARDS = "tests/log/test_guards.py"
RACES = "tests/log/test_guard_races.py"
DECISION_WAITS = f"{GUARDS}::test_a_decision_waits_for_open_writers_and_sees_their_messages"
WRITER_WAITS = f"{GUARDS}::test_a_writer_waits_for_a_decision_in_flight"
TWO_DECISIONS = f"{GUARDS}::test_of_two_decisions_at_once_the_second_is_refused"

KEYS = (
    Mutant(
        "lock-of-a-decision-of-one",
        "If a decision of one message shared the locks of its boundary",
        (
            Edit(
                APPEND_ONE,
                "then pg_advisory_xact_lock(key)",
                "then pg_advisory_xact_lock_shared(key)",
            ),
        ),
        (
            f"{RACES}::test_of_two_that_take_the_last_seat_at_once_one_is_refused",
            f"{GUARDS}::test_a_second_decision_on_the_same_boundary_waits_for_the_first",
            f"{TWO_DECISIONS}[decide_on_another_type]",
            f"{WRITER_WAITS}[write_alone-decide_alone]",
        ),
    ),
    Mutant(
        "lock-of-a-decision",
        "If a decision of several messages, or for elsewhere, shared the locks of its boundary",
        (
            Edit(
                APPEND,
                "    elsif may_wait then\n      done := pg_advisory_xact_lock(key);",
                "    elsif may_wait then\n      done := pg_advisory_xact_lock_shared(key);",
            ),
        ),
        (
            f"{TWO_DECISIONS}[decide_in_a_batch]",
            f"{TWO_DECISIONS}[decide_for_elsewhere]",
            f"{WRITER_WAITS}[write_a_batch-decide_for_elsewhere]",
        ),
    ),
    Mutant(
        "lock-of-a-late-decision",
        "If a decision late in a transaction went on without its locks",
        (Edit(APPEND, "elsif not pg_try_advisory_xact_lock(key) then", "elsif false then"),),
        (
            f"{GUARDS}::test_a_decision_late_in_a_transaction_does_not_wait_but_asks_to_be_retried",
            f"{FLAT}::test_a_guard_of_many_conditions_late_in_a_transaction_does_not_wait",
        ),
    ),
    Mutant(
        "lock-of-an-append-of-one",
        "If an append of one message did not share the locks of its attributes",
        (Edit(APPEND_ONE, "else pg_advisory_xact_lock_shared(key) end;", "else null end;"),),
        (
            f"{GUARDS}::test_a_guard_waits_for_a_writer_that_is_open_and_then_sees_its_message",
            f"{GUARDS}::test_a_message_that_has_one_of_two_attributes_only_is_a_conflict",
            f"{DECISION_WAITS}[write_alone-decide_in_a_batch]",
            f"{WRITER_WAITS}[write_alone-decide_on_another_type]",
        ),
    ),
    Mutant(
        "lock-of-an-append",
        "If an append of several messages did not share the locks of their attributes",
        (
            Edit(
                APPEND,
                "    if key <> all (exclusive) then\n"
                "      done := pg_advisory_xact_lock_shared(key);",
                "    if key <> all (exclusive) then\n      null;",
            ),
        ),
        (
            f"{DECISION_WAITS}[write_a_batch-decide_alone]",
            f"{WRITER_WAITS}[write_a_batch-decide_alone]",
        ),
    ),
    Mutant(
        "one-attribute-of-a-guard",
        "If a guard watched the first of its attributes only",
        (
            Edit(
                APPEND_ONE,
                "unnest(guard_values) as value) c),",
                "unnest(guard_values) as value) c limit 1),",
            ),
        ),
        (f"{GUARDS}::test_a_message_that_has_one_of_two_attributes_only_is_a_conflict",),
    ),
    Mutant(
        "types-in-place-of-many-keys",
        "If a guard of very many attributes did not lock their types instead",
        (
            Edit(
                APPEND,
                "        select distinct penstock.key_pair('', c.condition ->> 'type')\n"
                "        from jsonb_array_elements(conditions) as c(condition));",
                "        select 1::bigint where false);",
            ),
        ),
        (
            f"{FLAT}::test_a_guard_of_many_conditions_waits_for_a_writer_and_sees_its_message"
            "[append_one-alone]",
            f"{FLAT}::test_a_writer_waits_for_a_guard_of_many_conditions[append_one-in a batch]",
        ),
    ),
    Mutant(
        "lock-guard",
        "If a guard that is locked first were not locked",
        (
            Edit(
                BOUNDARIES,
                "null, '{}', penstock.boundary_keys(conditions), '{}', false, conditions);",
                "null, '{}', '{}', '{}', false, conditions);",
            ),
        ),
        (f"{GUARDS}::test_a_guard_locked_first_lets_the_decision_come_late",),
    ),
)

GATE = (
    Mutant(
        "gate-of-a-decision-of-one",
        "If a decision of one message did not keep bulk writers out",
        (
            Edit(
                APPEND_ONE,
                "lock table penstock.boundary_gate in row exclusive mode;",
                "null;",
            ),
        ),
        (
            f"{DECISION_WAITS}[write_a_bulk-decide_on_another_type]",
            f"{WRITER_WAITS}[write_a_bulk-decide_on_another_type]",
        ),
    ),
    Mutant(
        "gate-of-a-decision",
        "If a decision of several messages, or for elsewhere, did not keep bulk writers out",
        (Edit(APPEND, "lock table penstock.boundary_gate in row exclusive mode;", "null;"),),
        (
            f"{DECISION_WAITS}[write_a_bulk-decide_in_a_batch]",
            f"{WRITER_WAITS}[write_a_bulk-decide_for_elsewhere]",
        ),
    ),
    Mutant(
        "gate-of-a-bulk-append",
        "If a bulk append, which takes no locks of attributes, did not hold the gate either",
        (Edit(APPEND, "lock table penstock.boundary_gate in share mode;", "null;"),),
        (
            f"{DECISION_WAITS}[write_a_bulk-decide_on_another_type]",
            f"{WRITER_WAITS}[write_a_bulk-decide_in_a_batch]",
        ),
    ),
    Mutant(
        "gate-of-a-guarded-bulk-append",
        "If a bulk append under a guard did not hold the gate",
        (
            Edit(
                APPEND,
                "lock table penstock.boundary_gate in share row exclusive mode;",
                "null;",
            ),
        ),
        (
            f"{DECISION_WAITS}[write_a_guarded_bulk-decide_on_another_type]",
            f"{WRITER_WAITS}[write_a_guarded_bulk-decide_on_another_type]",
        ),
    ),
    Mutant(
        "gate-of-a-bulk-insert",
        "If a bulk insert past Penstock did not hold the gate",
        (Edit(BOUNDARIES, "lock table penstock.boundary_gate in share mode;", "null;"),),
        (
            f"{FLAT}::test_a_guard_of_many_conditions_waits_for_a_writer_and_sees_its_message"
            "[copy_many-alone]",
            f"{FLAT}::test_a_writer_waits_for_a_guard_of_many_conditions[copy_many-alone]",
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*KEYS, *GATE)
