"""Promise 5: work that was begun is finished, by this process or another."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

OUTBOX = "database/sql/penstock/40_outbox.sql"
JOINS = "database/sql/penstock/41_joins.sql"
WAITS = "database/sql/penstock/42_join_waits.sql"
DISPATCH_LOOP = "outbox/dispatch_loop.py"

DISPATCHER = "tests/outbox/test_dispatcher.py"
OUTBOX_TESTS = "tests/outbox/test_outbox.py"
LOCK_TESTS = "tests/outbox/test_outbox_locks.py"
JOIN_TESTS = "tests/outbox/test_joins.py"
PASSED_BY = f"{LOCK_TESTS}::test_what_others_have_locked_is_passed_by_and_not_waited_for"

_DISPATCHING: tuple[Mutant, ...] = (
    Mutant(
        "outbox-handle-first",
        "If a dispatcher acknowledged before it handled",
        (
            Edit(
                DISPATCH_LOOP,
                "            attempt.is_settled = self._routes",
                "            self._end_leases(operations.acknowledge(message))\n"
                "            attempt.is_settled = self._routes",
            ),
        ),
        (
            f"{DISPATCHER}::TestStop::test_a_killed_process_leaves_its_message_to_the_next",
            f"{DISPATCHER}::TestFailures"
            "::test_a_failing_handler_is_tried_again_and_the_last_error_kept",
        ),
    ),
    Mutant(
        "outbox-lease-ends",
        "If leases did not end",
        (Edit(OUTBOX, "    perform penstock.reap_outbox(greatest(most, 100));\n", "    null;\n"),),
        (
            f"{OUTBOX_TESTS}::TestClaim"
            "::test_a_message_whose_lease_ended_goes_to_the_next_with_nobodys_help",
            f"{DISPATCHER}::TestLeases"
            "::test_messages_of_the_dead_are_handled_while_others_keep_coming",
        ),
    ),
    Mutant(
        "outbox-lease-lasts",
        "If a lease ended before its time",
        (
            Edit(
                OUTBOX,
                "where e.state = 'in_progress' and e.lease_until < moment",
                "where e.state = 'in_progress'",
            ),
        ),
        (
            f"{OUTBOX_TESTS}::TestClaim::test_a_claimed_message_is_nobody_elses",
            f"{OUTBOX_TESTS}::TestLookAfter::test_reaping_makes_messages_of_the_dead_ready",
        ),
    ),
    Mutant(
        "outbox-lease-extended",
        "If a dispatcher did not extend the leases of messages whose handlers run",
        (
            Edit(
                DISPATCH_LOOP,
                "                self._store.run(one)\n",
                "                pass\n",
            ),
        ),
        (f"{DISPATCHER}::TestLeases::test_a_handler_may_run_longer_than_its_lease",),
    ),
    Mutant(
        "outbox-whole-look",
        "If a dispatcher that continues from its cursor never started at the head again",
        (
            Edit(
                "outbox/in_progress.py",
                "from_start or self.due is None or self._began >= self.next_from_start",
                "from_start or self.due is None",
            ),
        ),
        (
            f"{DISPATCHER}::TestLeases"
            "::test_a_message_committed_late_is_handled_while_others_keep_coming",
        ),
    ),
    Mutant(
        "outbox-given-back-at-stop",
        "If a dispatcher that stops kept what it has not begun",
        (
            Edit(
                DISPATCH_LOOP,
                "                self._give_back_waiting()\n"
                "                while self._in_progress:",
                "                self._in_progress.remove(self._handlers.take_back())\n"
                "                while self._in_progress:",
            ),
        ),
        (f"{DISPATCHER}::TestStop::test_stop_lets_handlers_end_and_gives_back_what_was_not_begun",),
    ),
    Mutant(
        "outbox-given-back-in-time",
        "If a dispatcher whose handlers hang kept what it has not begun",
        (
            Edit(
                DISPATCH_LOOP,
                "        if self._in_progress.have_waited_too_long():\n",
                "        if False:\n",
            ),
        ),
        (f"{DISPATCHER}::TestLeases::test_what_no_handler_could_begin_goes_to_another_dispatcher",),
    ),
    Mutant(
        "outbox-unbegun-attempts",
        "If a message that was given back unbegun had used up an attempt",
        (Edit(OUTBOX, "attempts = o.attempts - (not counts)::int", "attempts = o.attempts"),),
        (f"{DISPATCHER}::TestStop::test_stop_lets_handlers_end_and_gives_back_what_was_not_begun",),
    ),
    Mutant(
        "outbox-undecodable",
        "If a payload that cannot be decoded came to the handler",
        (
            Edit(
                DISPATCH_LOOP,
                "            if isinstance(message.payload, UndecodablePayload):\n",
                "            if False:\n",
            ),
        ),
        (
            f"{DISPATCHER}::TestFailures"
            "::test_a_payload_that_cannot_be_decoded_fails_alone_with_its_reason",
        ),
    ),
    Mutant(
        "outbox-undecodable-alone",
        "If a payload that cannot be decoded failed the whole claim",
        (
            Edit(
                "outbox/messages.py",
                "        return UndecodablePayload(payload, encoding, first_line(error))\n",
                "        raise ValueError(first_line(error)) from error\n",
            ),
        ),
        (
            f"{DISPATCHER}::TestFailures"
            "::test_a_payload_that_cannot_be_decoded_fails_alone_with_its_reason",
        ),
    ),
    Mutant(
        "outbox-outage",
        "If a dispatcher ended when its database is away",
        (
            Edit(
                "loops/outage.py",
                "        except UnavailableError as error:\n            self.goes_on(error)\n",
                "        except UnavailableError:\n            raise\n",
            ),
        ),
        (f"{DISPATCHER}::TestFailures::test_nor_does_a_database_that_is_away_for_a_while",),
    ),
    Mutant(
        "outbox-identity",
        "If what is published had another identity than the message it came from",
        (
            Edit(
                "outbox/dispatcher.py",
                "message.payload, metadata, id=message.id",
                "message.payload, metadata",
            ),
        ),
        (f"{DISPATCHER}::TestPublish::test_an_outbox_message_becomes_a_message_of_the_log",),
    ),
    Mutant(
        "outbox-failed-kept",
        "If failed messages were removed with those that are done",
        (Edit(OUTBOX, "  if failed then\n    delete", "  if true then\n    delete"),),
        (f"{OUTBOX_TESTS}::TestLookAfter::test_what_was_done_long_ago_is_removed",),
    ),
    Mutant(
        "outbox-clean-failed-lock",
        "If a failed message were removed while somebody has it tried again",
        (
            Edit(
                OUTBOX,
                "      limit most\n      for update skip locked));",
                "      limit most));",
            ),
        ),
        (f"{LOCK_TESTS}::test_a_failed_message_that_is_tried_again_at_this_moment_is_not_removed",),
    ),
)


def _waits(name: str, without: str, file: str, before: str, case: str) -> Mutant:
    """A mutant that waits for rows that somebody has locked, where it should pass them by."""
    edit = Edit(file, f"{before}for update skip locked", f"{before}for update")
    return Mutant(f"outbox-{name}-passes-by", without, (edit,), (f"{PASSED_BY}[{case}]",))


_PASSING_BY: tuple[Mutant, ...] = (
    _waits(
        "claim",
        "If a claim waited for messages that others have locked",
        OUTBOX,
        "order by o.due, o.id limit most\n      ",
        "enqueued-claims",
    ),
    _waits(
        "claim-topics",
        "If a claim of topics waited for messages that others have locked",
        OUTBOX,
        "limit most - cardinality(locked)\n      ",
        "enqueued-claims_of_topics",
    ),
    _waits(
        "reap",
        "If ending leases waited for messages that others have locked",
        OUTBOX,
        "order by e.lease_until limit most\n    ",
        "of_the_dead-reaps",
    ),
    _waits(
        "clean",
        "If removing what is done waited for messages that others have locked",
        OUTBOX,
        "order by d.finished_at limit most\n    ",
        "done-cleans_up",
    ),
    _waits(
        "clean-failed",
        "If removing what failed waited for messages that others have locked",
        OUTBOX,
        "      limit most\n      ",
        "failed-cleans_up",
    ),
    _waits(
        "clean-joins",
        "If removing joins waited for those that others have locked",
        JOINS,
        "order by f.updated_at limit most\n    ",
        "a_cancelled_join-cleans_up_joins",
    ),
    _waits(
        "report",
        "If the report of topics without a handler waited for messages that others have locked",
        OUTBOX,
        "where l.id = unhandled.id and l.state = 'ready'\n      ",
        "enqueued-reports",
    ),
    Mutant(
        "outbox-claim-goes-on",
        "If a claim of topics ended at messages that others have locked",
        (
            Edit(
                OUTBOX,
                "    if cardinality(locked) = most or ids[most] is null then\n",
                "    if true then\n",
            ),
        ),
        (
            f"{OUTBOX_TESTS}::TestClaim"
            "::test_a_claim_of_topics_goes_on_behind_what_others_have_locked",
        ),
    ),
)

_JOINS: tuple[Mutant, ...] = (
    Mutant(
        "join-wake",
        "If the last step of a join did not wake its wait",
        (
            Edit(
                JOINS,
                "      perform penstock.wake_wait(landed.wait_id);\n",
                "      null;\n",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestDecided"
            "::test_waiting_uses_no_attempts_and_is_woken_when_the_last_step_lands",
            f"{JOIN_TESTS}::TestSpecification"
            "::test_join_018_a_join_that_succeeds_enqueues_one_message",
        ),
    ),
    Mutant(
        "join-wake-on-cancel",
        "If cancelling a join did not wake its wait",
        (Edit(JOINS, "  perform penstock.wake_wait(own.wait_id);\n", ""),),
        (f"{JOIN_TESTS}::TestDecided::test_cancelled_is_final_and_has_no_follow_up",),
    ),
    Mutant(
        "join-late-wait",
        "If a wait that comes after the last step slept",
        (
            Edit(
                WAITS,
                "case when own.completed_steps + own.failed_steps = own.expected_steps\n"
                "      then clock_timestamp() else own.times_out_at end",
                "own.times_out_at",
            ),
        ),
        (f"{JOIN_TESTS}::TestDecided::test_a_wait_for_a_complete_join_is_awake",),
    ),
    Mutant(
        "join-attach-finished",
        "If a message that is finished already did not count when it is attached",
        (
            Edit(
                JOINS,
                "where o.id = any (new_ids) and o.state in ('done', 'failed')",
                "where false and o.state in ('done', 'failed')",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestDecided"
            "::test_attaching_a_finished_message_counts_its_outcome_then_and_there",
            f"{JOIN_TESTS}::TestRaces::test_a_message_attached_while_it_is_acknowledged_counts_once",
        ),
    ),
    Mutant(
        "join-resolve-version",
        "If a resolve that goes back to sleep left the version of the steps as it was",
        (
            Edit(
                WAITS,
                "  if own.status = 'pending' then\n"
                "    perform penstock.add_steps(own.join_id);\n  end if;\n",
                "",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces::test_a_last_step_on_an_old_snapshot_does_not_lose_the_wake_up",
        ),
    ),
    Mutant(
        "join-wait-version",
        "If a wait on an old snapshot left the version of the steps as it was",
        (
            Edit(
                WAITS,
                "  perform penstock.add_steps(own.join_id);\n  return enqueue_join_wait",
                "  return enqueue_join_wait",
            ),
        ),
        (f"{JOIN_TESTS}::TestRaces::test_a_wait_enqueued_on_an_old_snapshot_is_not_left_asleep",),
    ),
    Mutant(
        "join-wait-for-finished",
        "If a message could wait for a join that is finished",
        (
            Edit(
                WAITS,
                "    return known.id;\n  elsif own.status <> 'pending' then\n"
                "    raise exception using errcode = 'PS061',",
                "    return known.id;\n  elsif false then\n"
                "    raise exception using errcode = 'PS061',",
            ),
        ),
        (f"{JOIN_TESTS}::TestBadInput::test_a_finished_join_takes_no_more",),
    ),
    Mutant(
        "join-unknown",
        "If a join that is not there were waited for",
        (
            Edit(
                JOINS,
                "  if not found then\n    raise exception using errcode = 'PS060',",
                "  if false then\n    raise exception using errcode = 'PS060',",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestBadInput::test_an_unknown_join_is_not_found",
            f"{JOIN_TESTS}::TestDecided::test_a_missing_join_fails_at_once_with_its_reason",
        ),
    ),
    Mutant(
        "join-unknown-message",
        "If a message that is not there could be a step, which nobody would finish",
        (
            Edit(
                JOINS,
                "  if cardinality(known_ids) < cardinality(new_ids) then\n"
                "    unknown := (select unnest(new_ids) except select unnest(known_ids) limit 1);\n"
                "    raise exception using errcode = 'PS062',",
                "  if false then\n"
                "    unknown := (select unnest(new_ids) except select unnest(known_ids) limit 1);\n"
                "    raise exception using errcode = 'PS062',",
            ),
        ),
        (f"{JOIN_TESTS}::TestBadInput::test_an_unknown_message_cannot_be_attached",),
    ),
    Mutant(
        "join-report-unknown",
        "If the outcome of a message that is no step were dropped in silence",
        (
            Edit(
                JOINS,
                "where m.join_id = own.join_id and m.message_id = report_step.message_id\n"
                "  ) then\n    raise exception using errcode = 'PS064',",
                "where m.join_id = own.join_id and m.message_id = report_step.message_id\n"
                "  ) and false then\n    raise exception using errcode = 'PS064',",
            ),
        ),
        (f"{JOIN_TESTS}::TestDecided::test_reporting_for_a_message_not_attached_raises",),
    ),
    Mutant(
        "join-ring",
        "If joins could wait for each other in a ring",
        (
            Edit(
                WAITS,
                "  if found then\n    raise exception using errcode = 'PS068',",
                "  if false then\n    raise exception using errcode = 'PS068',",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestDecided::test_a_ring_of_joins_is_refused",
            f"{JOIN_TESTS}::TestRaces::test_two_that_would_close_a_ring_together_do_not",
        ),
    ),
    Mutant(
        "join-ring-lock",
        "If two could look for rings at once",
        (Edit(WAITS, "  perform pg_advisory_xact_lock(7274503915068317241);\n", ""),),
        (
            f"{JOIN_TESTS}::TestRaces"
            "::test_a_ring_is_found_by_whose_snapshot_lies_between_two_that_nest",
        ),
    ),
    Mutant(
        "join-ring-version",
        "If who looks for rings on an old snapshot were not told",
        (
            Edit(
                WAITS,
                "  update penstock.join_nesting n set version = n.version + 1\n"
                "  where n.version = (select max(l.version) from penstock.join_nesting l);\n",
                "",
            ),
        ),
        (f"{JOIN_TESTS}::TestRaces::test_two_that_would_close_a_ring_together_do_not",),
    ),
    Mutant(
        "join-wait-policy",
        "If a wait were given up as other messages are",
        (
            Edit(
                "outbox/dispatcher.py",
                "FailurePolicy.retry(attempts=2**31,",
                "FailurePolicy.retry(attempts=1,",
            ),
        ),
        (f"{DISPATCHER}::test_a_waits_policy_is_its_own",),
    ),
    Mutant(
        "join-clean-awaited",
        "If a cancelled join were removed before its wait has seen it",
        (
            Edit(
                JOINS,
                "where o.id = f.wait_id and o.state in ('ready', 'in_progress'))",
                "where false and o.state in ('ready', 'in_progress'))",
            ),
        ),
        (f"{JOIN_TESTS}::TestDecided::test_finished_joins_are_cleaned_up_and_pending_ones_stay",),
    ),
)

MUTANTS: tuple[Mutant, ...] = _DISPATCHING + _PASSING_BY + _JOINS
