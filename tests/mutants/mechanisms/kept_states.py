"""Promises 2 and 6, of states that are kept: when one is not continued, and what it saves."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SQL = "database/sql/penstock/38_decisions.sql"
DECISION = "log/decision.py"
DECISIONS = "log/decisions.py"
DECIDER = "log/decider.py"
CALLS = "log/boundary_calls.py"
DECIDING = "groups/deciding.py"
DECIDE_CLAIM = "groups/decide_claim.py"
KEPT = "tests/log/test_decisions.py::TestKeptStates"
REMOVALS = "tests/log/test_decisions.py::TestAfterRemovals"
SNAPSHOTS = "tests/log/test_decisions.py::TestSnapshots"
WORKERS = "tests/groups/test_deciding_worker.py"
FLAT_DECISIONS = "tests/promises/test_flat_decisions.py"

_CONTINUED = (
    Mutant(
        "state-of-a-truncated-log",
        "If a state of a log that was truncated were continued",
        (Edit(DECISION, "unseen.incarnation != begin.incarnation or ", ""),),
        (f"{REMOVALS}::test_a_snapshot_of_a_truncated_log_that_is_saved_late_is_ignored",),
    ),
    Mutant(
        "state-of-a-restored-log",
        "If a state of a log that was restored to an earlier moment were continued",
        (Edit(DECISION, " or unseen.last_position < begin.last_position:", ":"),),
        (
            f"{REMOVALS}::test_the_state_of_a_log_that_was_restored_to_an_earlier_moment_is_forgotten",
        ),
    ),
    Mutant(
        "state-of-what-was-removed",
        "If a state were continued that has seen, or missed, what was removed since",
        (
            Edit(
                DECISION,
                "    if unseen.removed_to != begin.removed_to:\n        return False\n",
                "",
            ),
        ),
        (
            f"{REMOVALS}::test_a_state_that_may_not_have_seen_what_was_removed_is_not_continued",
            f"{REMOVALS}::test_a_state_never_knows_more_than_the_log",
        ),
    ),
    Mutant(
        "state-in-another-order",
        "If a message that was committed late came after those that were committed before it",
        (Edit(DECISION, "first is None or first > begin.last_position", "True"),),
        (
            f"{KEPT}::test_a_message_that_is_committed_late_takes_its_place_in_the_order",
            f"{SNAPSHOTS}::test_a_late_message_below_a_snapshot_takes_its_place_in_the_order",
        ),
    ),
    Mutant(
        "state-past-an-open-writer",
        "If a state counted as complete up to a position below which a writer is open",
        (
            Edit(
                SQL,
                "  complete := penstock.complete_to();",
                "  complete := penstock.last_position();",
            ),
        ),
        (f"{KEPT}::test_a_message_that_is_committed_late_takes_its_place_in_the_order",),
    ),
    Mutant(
        "state-of-an-open-transaction",
        "If a state were kept that an open transaction was read for",
        (
            Edit(
                CALLS,
                "boundary.as_guard(conditions), keep=False",
                "boundary.as_guard(conditions), keep=True",
            ),
        ),
        (f"{KEPT}::test_what_a_transaction_rolls_back_is_not_kept",),
    ),
    Mutant(
        "state-that-decide-changed",
        "If a decider could change the state that is kept",
        (Edit(DECIDER, "self.decide(copied(state), command)", "self.decide(state, command)"),),
        (f"{KEPT}::test_what_decide_makes_of_the_state_is_not_kept",),
    ),
    Mutant(
        "state-of-another-decider",
        "If deciders shared the state of a boundary",
        (
            Edit(
                "log/state_cache.py",
                "key = (id(decider), conditions)",
                "key = (0, conditions)",
                times=2,
            ),
        ),
        (f"{KEPT}::test_each_decider_and_each_boundary_has_a_state_of_its_own",),
    ),
)

_SAVED = (
    Mutant(
        "snapshot-of-another-version",
        "If a snapshot of another version were used",
        (Edit(SQL, " and s.version = latest_snapshot.version", ""),),
        (f"{SNAPSHOTS}::test_one_of_another_version_is_ignored",),
    ),
    Mutant(
        "snapshot-of-another-boundary",
        "If a snapshot of another boundary were used",
        (
            Edit(SQL, "    and s.boundary = latest_snapshot.boundary\n", ""),
            Edit(SQL, "  where s.conditions = load_snapshot.conditions\n", ""),
        ),
        (f"{SNAPSHOTS}::test_one_of_another_boundary_is_not_used",),
    ),
    Mutant(
        "snapshot-replaced-by-an-older",
        "If an older snapshot replaced a newer one",
        (
            Edit(
                SQL,
                "    exit when old.position > save_snapshot.position and",
                "    exit when false and",
            ),
        ),
        (f"{SNAPSHOTS}::test_an_older_one_does_not_replace_a_newer",),
    ),
    Mutant(
        "snapshot-that-cannot-be-decoded",
        "If a snapshot that cannot be decoded failed the decision",
        (
            Edit(
                DECISIONS,
                "    except Exception as error:  # of msgspec, or of the state's own methods\n",
                "    except ZeroDivisionError as error:\n",
            ),
        ),
        (f"{SNAPSHOTS}::test_one_that_cannot_be_decoded_is_ignored_reported_once_and_replaced",),
    ),
    Mutant(
        "snapshot-that-cannot-be-saved",
        "If a snapshot that cannot be saved failed the decision",
        (
            Edit(
                DECISIONS,
                "    except Exception as error:  # of the state or the database",
                "    except ZeroDivisionError as error:  # of the state or the database",
            ),
        ),
        (f"{SNAPSHOTS}::test_a_snapshot_that_cannot_be_saved_does_not_fail_the_decision",),
    ),
    Mutant(
        "snapshot-that-changes-the-state",
        "If a snapshot were saved that is another state when it is read",
        (
            Edit(
                "log/state_codec.py",
                "if type(decoded) is not type(state) or decoded != state:",
                "if False:",
            ),
        ),
        (f"{SNAPSHOTS}::test_a_state_that_would_change_by_being_saved_is_not",),
    ),
)

_BATCHES = (
    Mutant(
        "batch-on-one-state",
        "If the commands of a claim were all decided on the same state",
        (
            Edit(
                DECIDING,
                "state = self.decider.evolved(state, events)",
                "self.decider.evolved(state, events)",
            ),
        ),
        (f"{WORKERS}::test_commands_are_decided_in_turn_and_their_outcomes_appended_at_once",),
    ),
    Mutant(
        "batch-with-all-outcomes",
        "If outcomes outside of the boundary changed the state of a claim",
        (Edit(DECIDING, "if matches(conditions, type, msgspec.json.decode(data)):", "if True:"),),
        (f"{WORKERS}::test_outcomes_outside_the_partition_do_not_evolve_its_state",),
    ),
    Mutant(
        "batch-past-an-interceptor",
        "If a claim were decided on outcomes that an interceptor changes when they are written",
        (
            Edit(
                DECIDING,
                '        raise ValueError("an interceptor may change messages")\n',
                "        pass\n",
            ),
        ),
        (f"{WORKERS}::test_where_an_interceptor_changes_messages_each_outcome_is_read_first",),
    ),
    Mutant(
        "batch-lost-by-poison",
        "If a command that fails kept those before it from being settled",
        (Edit(DECIDING, "return Decided(outcomes, error)", "return Decided([], error)"),),
        (f"{WORKERS}::test_poison_keeps_nothing_from_those_before_it_and_stops_its_partition",),
    ),
    Mutant(
        "batch-lost-by-an-outcome",
        "If an outcome that cannot be appended kept those before it from being settled",
        (
            Edit(
                DECIDE_CLAIM,
                "            if count == 1:\n                raise\n",
                "            raise\n",
            ),
        ),
        (f"{WORKERS}::test_an_outcome_that_cannot_be_appended_keeps_nothing_from_those_before_it",),
    ),
    Mutant(
        "batch-without-its-guard",
        "If the outcomes of a claim were appended though the boundary has changed",
        (
            Edit(
                DECIDE_CLAIM,
                "decided.first(count), begin.guard, last",
                "decided.first(count), claim.guard, last",
            ),
        ),
        (f"{WORKERS}::test_a_conflict_is_decided_again_and_nothing_is_appended_twice",),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*_CONTINUED, *_SAVED, *_BATCHES)

FLAT: tuple[Mutant, ...] = (
    Mutant(
        "flat-kept-states",
        "If each decision read its whole boundary",
        (Edit(DECISIONS, "states.get(decider, key)", "None"),),
        (
            f"{FLAT_DECISIONS}::test_a_decision_on_a_kept_state_reads_as_much_on_a_long_history",
            f"{KEPT}::test_a_retry_reads_only_what_is_new",
        ),
    ),
    Mutant(
        "flat-snapshots",
        "If a decision did not begin with the snapshot",
        (
            Edit(
                DECISIONS, "if current is None and decider.snapshot_every is not None:", "if False:"
            ),
        ),
        (
            f"{FLAT_DECISIONS}::test_a_decision_from_a_snapshot_reads_as_much_on_a_long_history",
            f"{SNAPSHOTS}::test_another_process_begins_with_the_snapshot",
        ),
    ),
    Mutant(
        "flat-unseen",
        "If what a kept state has seen were read again while a writer is open",
        (Edit(SQL, "read_unseen.low, read_unseen.seen)", "read_unseen.low)"),),
        (f"{KEPT}::test_while_an_open_writer_holds_the_watermark_back_nothing_is_read_twice",),
    ),
)
