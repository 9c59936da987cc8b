"""Promise 2, of a decision: what it was made on, what is checked, and that it is made again."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

BOUNDARIES = "database/sql/penstock/31_boundaries.sql"
APPEND = "database/sql/penstock/32_append.sql"
APPEND_ONE = "database/sql/penstock/32_append_one.sql"
APPENDING = "tests/log/test_appending.py"
DECIDED = "tests/groups/test_decided.py"
DECIDER = "tests/log/test_decider.py"
FLAT = "tests/promises/test_flat_guards.py"
GUARDS = "tests/log/test_guards.py"
RACES = "tests/log/test_guard_races.py"
SPECIFICATION = "tests/groups/test_specification.py"
TRUNCATE = "tests/log/test_truncate.py"
DECISION_WAITS = f"{GUARDS}::test_a_decision_waits_for_open_writers_and_sees_their_messages"
TWO_DECISIONS = f"{GUARDS}::test_of_two_decisions_at_once_the_second_is_refused"
OLD_SNAPSHOT = f"{GUARDS}::test_a_guard_is_refused_where_the_transaction_keeps_its_snapshot"

_CHECK = (
    "    unseen := penstock.has_unseen(watched, watched_types,\n"
    "      (guard ->> 'low')::bigint, (guard ->> 'seen')::int8multirange);\n"
)
_QUICK_CHECK = """\
      if not isempty(guard_seen) then
        exit usual when penstock.has_unseen(watched, watched_types, guard_low, guard_seen);
      else
        exit usual when exists (
          select from penstock.message_attributes a
          where a.key_pair = any (array_prepend(penstock.removal_key(), watched))
            and a.type_id = any (watched_types) and a.global_position > guard_low);
      end if;
"""
_NO_CHECK = "    if false then\n      null;\n"

CHECKS = (
    Mutant(
        "guard-check",
        "Without the check of a guard",
        (
            Edit(
                BOUNDARIES,
                "    raise exception using errcode = 'PS043',",
                "    return;\n    raise exception using errcode = 'PS043',",
            ),
        ),
        (
            f"{GUARDS}::test_a_message_appended_between_read_and_append_is_a_conflict",
            f"{GUARDS}::test_a_condition_without_attributes_watches_the_whole_type",
            f"{GUARDS}::test_a_bulk_append_is_a_conflict_for_each_guard_that_it_touches",
            f"{SPECIFICATION}"
            "::test_27_the_guard_detects_concurrent_writes_in_a_composite_partition",
            f"{RACES}::test_never_a_21st_seat_and_no_attempt_is_lost[few courses]",
        ),
    ),
    Mutant(
        "quick-check",
        "If an append of one message did not look for what came after its guard",
        (
            Edit(
                APPEND_ONE,
                "and a.type_id = any (watched_types) and a.global_position > guard_low);",
                "and false);",
            ),
        ),
        (
            f"{GUARDS}::test_a_write_past_penstock_is_a_conflict[penstock-write_message]",
            f"{SPECIFICATION}::test_19_the_guard_detects_concurrent_conflicting_writes",
            f"{DECIDER}::test_a_conflict_is_decided_again_and_given_up_in_the_end",
            "tests/groups/test_worker.py::test_after_a_conflict_it_decides_again",
        ),
    ),
    Mutant(
        "check-beside-what-was-seen",
        "If what came between the messages that a guard has seen were not looked for",
        (Edit(BOUNDARIES, "        and not seen @> a.global_position\n", "        and false\n"),),
        (
            f"{FLAT}::test_a_guard_of_many_ranges_finds_what_was_written_between_them",
            f"{GUARDS}::test_a_writer_that_was_open_at_the_read_is_a_conflict_once_it_commits",
            f"{DECISION_WAITS}[write_alone-decide_in_a_batch]",
        ),
    ),
    Mutant(
        "check-before-the-locks",
        "If a guard were checked before its locks are taken",
        (
            Edit(APPEND, f"  if guard is not null then\n{_CHECK}  end if;\n", ""),
            Edit(
                APPEND,
                "  done := penstock.lock_for_append(append.stream_name,",
                f"  if guard is not null then\n{_CHECK}  end if;\n"
                "  done := penstock.lock_for_append(append.stream_name,",
            ),
        ),
        (f"{TWO_DECISIONS}[decide_in_a_batch]",),
    ),
    Mutant(
        "check-of-one-before-the-locks",
        "If a guard were checked before its locks are taken, for one message",
        (
            Edit(APPEND_ONE, f"    if guard_names is not null then\n{_QUICK_CHECK}", _NO_CHECK),
            Edit(
                APPEND_ONE,
                "    if append_one.stream_name is null then\n      done :=",
                f"    if guard_names is not null then\n{_QUICK_CHECK}"
                "    end if;\n"
                "    if append_one.stream_name is null then\n      done :=",
            ),
        ),
        (
            f"{GUARDS}::test_a_second_decision_on_the_same_boundary_waits_for_the_first",
            f"{DECISION_WAITS}[write_alone-decide_alone]",
        ),
    ),
    Mutant(
        "read-before-the-watermark",
        "If a boundary were read before it is known how far the log is complete",
        (
            Edit(
                BOUNDARIES,
                "declare\n  complete_to bigint;\n",
                "declare\n  complete_to bigint;\n"
                "  early constant bigint[] := array("
                "select penstock.matching_positions(conditions, 0));\n",
            ),
            Edit(
                BOUNDARIES,
                "from penstock.matching_positions(conditions, least(after, complete_to))"
                " p(position)",
                "from unnest(early) p(position)",
            ),
        ),
        (f"{GUARDS}::test_what_commits_while_a_boundary_is_read_is_not_below_low_and_unseen",),
    ),
    Mutant(
        "low-at-the-end",
        "If `low` were the last position handed out instead of the watermark",
        (
            Edit(
                BOUNDARIES,
                "  complete_to := penstock.complete_to();",
                "  complete_to := penstock.last_position();",
            ),
        ),
        (
            f"{GUARDS}::test_a_writer_that_was_open_at_the_read_is_a_conflict_once_it_commits",
            f"{GUARDS}::test_what_was_seen_above_low_is_no_conflict",
        ),
    ),
    Mutant(
        "seen-above-low",
        "If a guard did not keep what was seen above `low`",
        (
            Edit(
                BOUNDARIES,
                "array(select p.position from matching p where p.position > complete_to"
                " order by 1) end",
                "'{}'::bigint[] end",
            ),
        ),
        (f"{GUARDS}::test_what_was_seen_above_low_is_no_conflict",),
    ),
    Mutant(
        "low-past-a-stranger",
        "If `low` were moved past messages that the guard has not seen",
        (
            Edit(
                BOUNDARIES,
                "    where p.position <= complete_to\n  ) then\n    return null;",
                "    where p.position <= complete_to\n  ) then\n    return complete_to;",
            ),
        ),
        (f"{APPENDING}::test_a_retry_does_not_move_a_guard_past_what_it_has_not_seen",),
    ),
    Mutant(
        "low-past-an-open-writer",
        "If `low` were moved past a writer that is open",
        (
            Edit(
                BOUNDARIES,
                "  complete_to constant bigint := penstock.complete_to();",
                "  complete_to constant bigint := penstock.last_position();",
            ),
        ),
        (f"{APPENDING}::test_a_guard_does_not_move_past_a_writer_that_is_open",),
    ),
    Mutant(
        "guard-of-a-truncated-log",
        "If a guard of a log that was truncated were taken for one of this log",
        (
            Edit(
                APPEND,
                "  elsif positions[1] <= (guard ->> 'low')::bigint then",
                "  elsif false then",
            ),
        ),
        (f"{TRUNCATE}::test_a_guard_of_the_old_log_is_refused[2]",),
    ),
    Mutant(
        "guard-of-a-truncated-log-for-one",
        "If a guard of a log that was truncated were taken for one of this log, by one message",
        (Edit(APPEND_ONE, "    if written <= guard_low then", "    if false then"),),
        (f"{TRUNCATE}::test_a_guard_of_the_old_log_is_refused[1]",),
    ),
    Mutant(
        "decision-on-old-snapshot",
        "If old snapshots could decide",
        (
            Edit(
                BOUNDARIES,
                "    raise exception using errcode = 'PS003',",
                "    return;\n    raise exception using errcode = 'PS003',",
            ),
        ),
        (
            f"{OLD_SNAPSHOT}[decide_alone-repeatable read]",
            f"{OLD_SNAPSHOT}[decide_in_a_batch-serializable]",
        ),
    ),
    Mutant(
        "old-snapshot-of-an-append",
        "If an append did not look whether it decides on an old snapshot",
        (
            Edit(
                APPEND,
                "\n        and current_setting('transaction_isolation') like 'read %')",
                ")",
            ),
        ),
        (f"{OLD_SNAPSHOT}[decide_in_a_batch-repeatable read]",),
    ),
    Mutant(
        "old-snapshot-of-an-append-of-one",
        "If an append of one message did not look whether it decides on an old snapshot",
        (
            Edit(
                APPEND_ONE,
                "current_setting('transaction_isolation') like 'read %'",
                "true",
                times=2,
            ),
        ),
        (
            f"{OLD_SNAPSHOT}[decide_alone-repeatable read]",
            f"{OLD_SNAPSHOT}[decide_on_another_type-repeatable read]",
        ),
    ),
)

IN_PYTHON = (
    Mutant(
        "guard-after-an-append",
        "If the guard that an append returns had not seen the messages of the append",
        (
            Edit(
                "log/guard.py",
                "seen = merged([*above, *[(one, one) for one in positions if one > low]])",
                "seen = merged(above)",
            ),
        ),
        (
            f"{DECIDED}::test_an_append_returns_the_last_position_and_the_guard_to_use_next",
            f"{GUARDS}::test_what_was_seen_above_low_is_no_conflict",
        ),
    ),
    Mutant(
        "decide-again",
        "If a conflict were not decided again",
        (Edit("store.py", "retry(attempts=attempts)", "retry(attempts=1)"),),
        (f"{DECIDER}::test_a_conflict_is_decided_again_and_given_up_in_the_end",),
    ),
    Mutant(
        "read-again",
        "If a conflict were decided again on what was read before",
        (
            Edit(
                "log/boundary_calls.py",
                "        current = current_state(self, decider, guard, keep=keep)\n",
                "        read = current_state(self, decider, guard, keep=keep)\n"
                "        current = self.__dict__.setdefault('first', read)\n",
            ),
        ),
        (f"{DECIDER}::test_a_conflict_is_decided_again_and_given_up_in_the_end",),
    ),
    Mutant(
        "decide-again-in-a-transaction",
        "If a conflict within a transaction, which it ends, were decided again",
        (
            Edit(
                "transaction.py",
                "    def lock_categories(self",
                "    def decide(self, *given):\n"
                "        from penstock.loops.retry import retry\n\n"
                "        return retry(attempts=10)(super().decide)(*given)\n\n"
                "    def lock_categories(self",
            ),
        ),
        (f"{DECIDER}::test_in_a_transaction_a_conflict_is_raised_and_not_tried_again",),
    ),
    Mutant(
        "state-of-the-last-decision",
        "If an event that fails, or the next decision, found the state changed in place",
        (
            Edit(
                "log/decider.py", "        state = copied(state)  # `evolve`", "        # `evolve`"
            ),
        ),
        (
            f"{DECIDER}::test_what_one_command_made_of_the_state_is_not_there_for_the_next",
            "tests/log/test_decisions.py::TestKeptStates"
            "::test_an_event_that_cannot_be_evolved_leaves_the_state_as_it_was",
        ),
    ),
    Mutant(
        "attributes-as-text",
        "If a serializer decided what an attribute is found by",
        (
            Edit(
                "message/typed.py",
                "                data[name] = msgspec.to_builtins(data[name])\n",
                "                pass\n",
            ),
        ),
        (
            "tests/message/test_typed.py::test_a_message_is_found_whatever_its_serializer_makes_of_dates",
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*CHECKS, *IN_PYTHON)
