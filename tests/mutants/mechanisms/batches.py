"""Promise 2, of calls that meet: a batch takes the locks of its calls, and decides in order."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

BATCH = "database/sql/penstock/32_write_batch.sql"
COALESCING = "tests/log/test_coalescing.py"
ELSEWHERE = (
    f"{COALESCING}::test_decisions_and_writers_elsewhere_wait_for_a_batch_and_see_its_messages"
)
HOLDS_UP = f"{COALESCING}::test_a_call_that_has_to_wait_for_a_lock_does_not_hold_up_the_others"
IN_ORDER = f"{COALESCING}::test_of_two_calls_that_exclude_each_other_the_first_is_written"
REFUSED = f"{COALESCING}::test_a_call_that_is_refused_does_not_affect_the_others"
MODEL = "tests/log/test_coalescing_model.py::test_a_batch_does_what_its_calls_do_one_by_one"

MUTANTS = (
    Mutant(
        "batch-exclusive-locks",
        "If a batch shared the locks of its streams and guards",
        (
            Edit(
                BATCH,
                "case when w.exclusive then pg_try_advisory_xact_lock(w.key)",
                "case when w.exclusive then pg_try_advisory_xact_lock_shared(w.key)",
            ),
        ),
        (f"{HOLDS_UP}[blocking]", f"{ELSEWHERE}[async]"),
    ),
    Mutant(
        "batch-shared-locks",
        "If a batch did not share the locks of its messages",
        (Edit(BATCH, "else pg_try_advisory_xact_lock_shared(w.key) end", "else true end"),),
        (f"{ELSEWHERE}[blocking]", f"{ELSEWHERE}[async]"),
    ),
    Mutant(
        "batch-waits-for-locks",
        "If a batch waited for its locks",
        (
            Edit(
                BATCH,
                "case when w.exclusive then pg_try_advisory_xact_lock(w.key)",
                "case when w.exclusive then pg_advisory_xact_lock(w.key) is not null",
            ),
        ),
        (f"{HOLDS_UP}[blocking]", f"{HOLDS_UP}[async]"),
    ),
    Mutant(
        "batch-gate",
        "If a batch with guards passed bulk appends",
        (Edit(BATCH, "lock table penstock.boundary_gate in row exclusive mode nowait;", "null;"),),
        (f"{COALESCING}::test_a_decision_in_a_batch_does_not_pass_a_bulk_append[blocking]",),
    ),
    Mutant(
        "batch-declaration",
        "If a type could be declared while a batch is written",
        (Edit(BATCH, "lock table message_store.messages in row exclusive mode nowait;", "null;"),),
        (f"{COALESCING}::test_a_batch_neither_passes_a_declaration_nor_waits_for_it",),
    ),
    Mutant(
        "batch-lock-limit",
        "If a batch took any number of locks",
        (
            Edit(
                BATCH,
                "  if first_beyond is null then\n    return refusals;",
                "  if true then\n    return refusals;",
            ),
        ),
        (
            f"{COALESCING}::test_a_batch_that_would_take_too_many_locks_is_sent_in_parts[blocking]",
            f"{COALESCING}"
            "::test_a_call_that_would_take_too_many_locks_by_itself_runs_alone[blocking]",
        ),
    ),
    Mutant(
        "batch-stale-guards",
        "If a batch did not check its guards",
        (Edit(BATCH, "elsif stale[this] is not null then", "elsif false then"),),
        (f"{REFUSED}[blocking]", f"{REFUSED}[async]"),
    ),
    Mutant(
        "batch-guards-in-order",
        "If the calls of a batch did not count for the guards of later ones",
        (
            Edit(
                BATCH,
                "if conflicts[this] is not null then\n            ref",
                "if false then\n            ref",
            ),
        ),
        (f"{IN_ORDER}[blocking]", f"{IN_ORDER}[async]", MODEL),
    ),
    Mutant(
        "batch-versions-in-order",
        "If the calls of a batch did not count for the versions of later ones",
        (
            Edit(
                BATCH,
                "versions[this] + case when refusals[this] is null",
                "versions[this] + case when false",
            ),
        ),
        (f"{IN_ORDER}[blocking]", MODEL),
    ),
    Mutant(
        "batch-calls-that-meet",
        "If a batch did not see that its calls exclude each other",
        (
            Edit(
                BATCH,
                "bool_or(w.exclusive) and min(w.call) < max(w.call) as overlap",
                "false as overlap",
            ),
        ),
        (f"{IN_ORDER}[blocking]", MODEL),
    ),
    Mutant(
        "batch-lost-message",
        "If a batch acknowledged a message that it did not insert",
        (
            Edit(
                BATCH,
                "if cardinality(written) is distinct from",
                "if false and cardinality(written) is distinct from",
            ),
        ),
        (
            f"{COALESCING}"
            "::test_a_message_that_another_transaction_wrote_meanwhile_is_not_acknowledged[blocking]",
        ),
    ),
)
