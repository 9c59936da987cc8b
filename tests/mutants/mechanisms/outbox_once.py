"""Promise 4, within the database: effects and progress commit together."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

OUTBOX = "database/sql/penstock/40_outbox.sql"
JOINS = "database/sql/penstock/41_joins.sql"
WAITS = "database/sql/penstock/42_join_waits.sql"

DISPATCHER = "tests/outbox/test_dispatcher.py"
OUTBOX_TESTS = "tests/outbox/test_outbox.py"
LOCK_TESTS = "tests/outbox/test_outbox_locks.py"
JOIN_TESTS = "tests/outbox/test_joins.py"

_SETTLING: tuple[Mutant, ...] = (
    Mutant(
        "outbox-finish-token",
        "If the outbox acknowledged or failed for who has lost the lease",
        (Edit(OUTBOX, "\n      and o.token = finish_outbox.token", ""),),
        (
            f"{DISPATCHER}::TestLeases::test_who_lost_a_lease_does_not_settle_the_message",
            f"{DISPATCHER}::TestPublish::test_who_lost_the_lease_publishes_nothing",
            f"{OUTBOX_TESTS}::TestSettle::test_a_stale_owner_gets_an_error_and_changes_nothing[blocking-acks]",
            f"{OUTBOX_TESTS}::TestSettle::test_a_stale_owner_gets_an_error_and_changes_nothing[blocking-fails]",
        ),
    ),
    Mutant(
        "outbox-abandon-token",
        "If who has lost the lease could give the message back",
        (Edit(OUTBOX, "\n      and o.token = abandon_outbox.token", ""),),
        (
            f"{OUTBOX_TESTS}::TestSettle::test_a_stale_owner_gets_an_error_and_changes_nothing[blocking-abandons]",
        ),
    ),
    Mutant(
        "outbox-extend-token",
        "If who has lost the lease could extend it",
        (Edit(OUTBOX, "\n      and o.token = extend_outbox.token", ""),),
        (
            f"{OUTBOX_TESTS}::TestSettle::test_a_stale_owner_gets_an_error_and_changes_nothing[blocking-extends]",
        ),
    ),
    Mutant(
        "outbox-settled-again",
        "If a message that was given back were still held by its old token",
        (
            Edit(
                OUTBOX,
                "set state = 'ready', token = null, lease_until = null,\n      due = coalesce",
                "set state = 'ready', lease_until = null,\n      due = coalesce",
            ),
        ),
        (
            f"{OUTBOX_TESTS}::TestSettle"
            "::test_the_same_call_again_answers_as_the_first_did_and_changes_nothing",
        ),
    ),
    Mutant(
        "outbox-repeated-call",
        "If an acknowledgement whose answer was lost were an error when it is repeated",
        (
            Edit(
                OUTBOX,
                "where o.id = any (others) and o.last_token = not_settled.token",
                "where false and o.last_token = not_settled.token",
            ),
        ),
        (
            f"{OUTBOX_TESTS}::TestSettle"
            "::test_the_same_call_again_answers_as_the_first_did_and_changes_nothing",
            f"{OUTBOX_TESTS}::TestSettle::test_the_same_call_twice_at_once_succeeds_twice",
        ),
    ),
    Mutant(
        "outbox-publish-apart",
        "If the outbox published and acknowledged in two transactions",
        (
            Edit(
                "outbox/dispatcher.py",
                "                transaction.run(operation)\n",
                "                store.run(operation)\n",
            ),
        ),
        (
            f"{DISPATCHER}::TestPublish::test_who_lost_the_lease_publishes_nothing",
            f"{DISPATCHER}::TestPublish"
            "::test_a_backend_killed_while_publishing_leaves_nothing_half_done",
        ),
    ),
    Mutant(
        "outbox-publish-stale",
        "If the outbox committed what it published whether or not it still held the message",
        (
            Edit(
                "outbox/dispatcher.py",
                "                operations.refuse_stale(settled)\n",
                "                pass\n",
            ),
        ),
        (f"{DISPATCHER}::TestPublish::test_who_lost_the_lease_publishes_nothing",),
    ),
    Mutant(
        "outbox-enqueue-again",
        "If a message that is enqueued again with its id or dedupe key were refused",
        (Edit(OUTBOX, "\n    on conflict do nothing\n    returning id", "\n    returning id"),),
        (
            f"{OUTBOX_TESTS}::TestEnqueue::test_a_known_id_adds_nothing",
            f"{OUTBOX_TESTS}::TestEnqueue::test_a_known_dedupe_key_returns_the_first_message",
        ),
    ),
    Mutant(
        "outbox-dedupe-key",
        "If a dedupe key were not unique",
        (
            Edit(
                OUTBOX,
                "create unique index if not exists outbox_dedupe",
                "create index if not exists outbox_dedupe",
            ),
        ),
        (
            f"{OUTBOX_TESTS}::TestEnqueue::test_a_known_dedupe_key_returns_the_first_message",
            f"{OUTBOX_TESTS}::TestEnqueue::test_a_dedupe_key_holds_also_when_the_message_is_done",
            f"{OUTBOX_TESTS}::TestEnqueue::test_in_one_batch_a_dedupe_key_counts_once",
        ),
    ),
)

_CLAIMING: tuple[Mutant, ...] = (
    Mutant(
        "outbox-claim-lock",
        "If a claim took messages that another claim is taking",
        (
            Edit(
                OUTBOX,
                "order by o.due, o.id limit most\n      for update skip locked);",
                "order by o.due, o.id limit most);",
            ),
        ),
        (f"{LOCK_TESTS}::test_of_two_who_claim_a_message_at_once_one_gets_it[None]",),
    ),
    Mutant(
        "outbox-claim-topics-lock",
        "If a claim of topics took messages that another claim is taking",
        (
            Edit(
                OUTBOX,
                "limit most - cardinality(locked)\n      for update skip locked);",
                "limit most - cardinality(locked));",
            ),
        ),
        (f"{LOCK_TESTS}::test_of_two_who_claim_a_message_at_once_one_gets_it[topics1]",),
    ),
    Mutant(
        "outbox-reap-lock",
        "If a lease were ended while its holder extends it",
        (
            Edit(
                OUTBOX,
                "order by e.lease_until limit most\n    for update skip locked));",
                "order by e.lease_until limit most));",
            ),
        ),
        (f"{LOCK_TESTS}::test_a_lease_that_is_extended_at_this_moment_has_not_ended",),
    ),
)

_COUNTING: tuple[Mutant, ...] = (
    Mutant(
        "join-count-with-ack",
        "If an acknowledgement did not count in joins in its own transaction",
        (
            Edit(
                OUTBOX,
                "  perform penstock.count_in_joins(finished, finish_outbox.outcome);\n",
                "",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestSpecification"
            "::test_join_001_an_ack_counts_as_completed_in_every_join_of_the_message",
            f"{JOIN_TESTS}::TestSpecification::test_join_002_counter_and_ack_are_one_transaction",
            f"{JOIN_TESTS}::TestSpecification"
            "::test_join_003_a_failure_counts_as_failed_in_every_join_of_the_message",
            f"{JOIN_TESTS}::TestSpecification"
            "::test_join_004_counter_and_failure_are_one_transaction",
        ),
    ),
    Mutant(
        "join-count-once",
        "If a step counted each time it is reported",
        (
            Edit(
                JOINS,
                "\n        and m.message_id = any (message_ids) and m.status = 'pending'\n",
                "\n        and m.message_id = any (message_ids)\n",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestSpecification"
            "::test_join_011_reporting_completion_twice_counts_once",
            f"{JOIN_TESTS}::TestSpecification::test_join_013_reporting_failure_twice_counts_once",
            f"{JOIN_TESTS}::TestDecided::test_each_member_counts_once_and_the_first_outcome_wins",
        ),
    ),
    Mutant(
        "join-count-cancelled",
        "If a step counted in a join that is cancelled",
        (
            Edit(
                JOINS,
                "j.join_id = m.join_id and j.status = 'pending' and",
                "j.join_id = m.join_id and",
            ),
        ),
        (f"{JOIN_TESTS}::TestDecided::test_cancelled_is_final_and_has_no_follow_up",),
    ),
    Mutant(
        "join-count-late",
        "If a step counted in a join whose time is up",
        (Edit(JOINS, "\n        and coalesce(j.times_out_at > clock_timestamp(), true)", ""),),
        (f"{JOIN_TESTS}::TestDecided::test_what_lands_after_the_timeout_does_not_count",),
    ),
    Mutant(
        "join-count-lock",
        "If an acknowledgement counted without the lock of the join",
        (
            Edit(
                JOINS,
                "    perform from penstock.joins j"
                " where j.join_id = any (affected) order by j.join_id for update;\n",
                "",
            ),
        ),
        (f"{JOIN_TESTS}::TestRaces::test_two_steps_that_are_acknowledged_at_once_both_count",),
    ),
    Mutant(
        "join-count-order",
        "If an acknowledgement locked joins in another order",
        (
            Edit(
                JOINS,
                "any (affected) order by j.join_id for update;",
                "any (affected) order by j.join_id desc for update;",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces::test_joins_are_locked_in_the_order_of_their_ids[blocking-acks]",
        ),
    ),
    Mutant(
        "join-attach-order",
        "If a message were attached to joins in another order",
        (
            Edit(
                JOINS,
                "select distinct j from unnest(join_ids) j order by j)",
                "select distinct j from unnest(join_ids) j order by j desc)",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces::test_joins_are_locked_in_the_order_of_their_ids[blocking-enqueues]",
        ),
    ),
    Mutant(
        "join-lock",
        "Without the lock of a join",
        (
            Edit(
                JOINS,
                "where j.join_id = locked_join.join_id for update;",
                "where j.join_id = locked_join.join_id;",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces::test_two_who_attach_a_last_step_at_once_do_not_both_do_it",
            f"{JOIN_TESTS}::TestRaces::test_a_cancel_while_the_join_is_resolved_comes_too_late",
        ),
    ),
    Mutant(
        "join-read-under-lock",
        "If a join were read before its lock is taken",
        (
            Edit(
                JOINS,
                "begin\n  perform from penstock.joins j where j.join_id = locked_join",
                "begin\n  select p.* into locked from penstock.join_progress p"
                " where p.join_id = locked_join.join_id;\n"
                "  perform from penstock.joins j where j.join_id = locked_join",
            ),
            Edit(
                JOINS,
                "  select p.* into locked from penstock.join_progress p"
                " where p.join_id = locked_join.join_id;\n  return",
                "  return",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces::test_two_who_attach_a_last_step_at_once_do_not_both_do_it",
            f"{JOIN_TESTS}::TestRaces::test_a_cancel_while_the_join_is_resolved_comes_too_late",
        ),
    ),
    Mutant(
        "join-attach-message-lock",
        "If a message were attached while it is being finished",
        (
            Edit(
                JOINS,
                "  perform from penstock.outbox o"
                " where o.id = any (known) order by o.id for no key update;\n"
                "  update penstock.outbox o set attempts = o.attempts\n"
                "  where o.id = any (known) and o.state in ('ready', 'in_progress');\n",
                "",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces::test_a_message_attached_while_it_is_acknowledged_counts_once",
            f"{JOIN_TESTS}::TestRaces::test_a_message_acknowledged_while_it_is_attached_counts_once",
        ),
    ),
    Mutant(
        "join-attach-touch",
        "If attaching a message left it as it was, for who finishes it on an old snapshot",
        (
            Edit(
                JOINS,
                "  update penstock.outbox o set attempts = o.attempts\n"
                "  where o.id = any (known) and o.state in ('ready', 'in_progress');\n",
                "",
            ),
        ),
        (f"{JOIN_TESTS}::TestRaces::test_an_ack_on_an_old_snapshot_does_not_overlook_a_member",),
    ),
    Mutant(
        "join-full",
        "If a join took more steps than it expects",
        (
            Edit(
                JOINS,
                "if own.attached_steps + cardinality(new_ids) > own.expected_steps then\n"
                "    raise exception using errcode = 'PS063',",
                "if false then\n    raise exception using errcode = 'PS063',",
            ),
        ),
        (f"{JOIN_TESTS}::TestDecided::test_counters_never_pass_expected_steps",),
    ),
    Mutant(
        "join-finished",
        "If a finished join took steps",
        (
            Edit(
                JOINS,
                "if penstock.join_status(own) <> 'pending' then\n"
                "    raise exception using errcode = 'PS061',",
                "if false then\n    raise exception using errcode = 'PS061',",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestBadInput::test_a_finished_join_takes_no_more[blocking-cancelled]",
            f"{JOIN_TESTS}::TestDecided"
            "::test_a_join_has_failed_once_its_time_is_up_also_if_nobody_waits",
        ),
    ),
)

_RESOLVING: tuple[Mutant, ...] = (
    Mutant(
        "join-resolve-token",
        "If who has lost the lease of a wait could resolve its join",
        (
            Edit(
                WAITS,
                "  else\n    raise exception using errcode = 'PS066',",
                "  elsif false then\n    raise exception using errcode = 'PS066',",
            ),
        ),
        (f"{JOIN_TESTS}::TestRaces::test_who_lost_the_wait_does_not_resolve_the_join",),
    ),
    Mutant(
        "join-resolve-once",
        "If a join were resolved whether or not it is resolved or cancelled already",
        (
            Edit(
                WAITS,
                "  if own.status = 'pending' then\n    outcome :=",
                "  if true then\n    outcome :=",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestDecided::test_a_wait_that_is_tried_again_finds_the_join_resolved",
            f"{JOIN_TESTS}::TestDecided"
            "::test_a_complete_join_can_be_cancelled_until_it_is_resolved",
        ),
    ),
    Mutant(
        "join-resolve-lock",
        "If the same resolve, sent twice, went on while the first is under way",
        (
            Edit(
                WAITS,
                "where o.id = resolve_join.wait_id for update;",
                "where o.id = resolve_join.wait_id;",
            ),
        ),
        (f"{JOIN_TESTS}::TestRaces::test_the_same_resolve_twice_at_once_answers_the_same_twice",),
    ),
    Mutant(
        "join-resolve-again",
        "If a resolve whose answer was lost were an error when it is repeated",
        (
            Edit(
                WAITS,
                "if wait.last_token = resolve_join.token and wait.last_outcome in",
                "if false and wait.last_outcome in",
            ),
        ),
        (f"{JOIN_TESTS}::TestDecided::test_resolving_again_with_the_same_token_answers_the_same",),
    ),
    Mutant(
        "join-resolve-outer-lock",
        "If a wait were counted in the joins around it without their locks",
        (
            Edit(
                WAITS,
                "  perform from penstock.joins j\n"
                "  where j.join_id = any (outer_joins || resolve_join.join_id)"
                " order by j.join_id for update;\n",
                "",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces"
            "::test_a_wait_that_is_resolved_as_a_step_beside_it_lands_counts_too",
        ),
    ),
    Mutant(
        "join-resolve-order",
        "If a resolve locked joins in another order",
        (
            Edit(
                WAITS,
                "any (outer_joins || resolve_join.join_id) order by j.join_id for update;",
                "any (outer_joins || resolve_join.join_id) order by j.join_id desc for update;",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestRaces::test_joins_are_locked_in_the_order_of_their_ids[blocking-resolves]",
        ),
    ),
    Mutant(
        "join-cancel-resolved",
        "If a resolved join could be cancelled",
        (
            Edit(
                JOINS,
                "    return false;\n  elsif own.status <> 'pending' then\n"
                "    raise exception using errcode = 'PS061',",
                "    return false;\n  elsif false then\n"
                "    raise exception using errcode = 'PS061',",
            ),
        ),
        (
            f"{JOIN_TESTS}::TestBadInput::test_a_resolved_join_cannot_be_cancelled",
            f"{JOIN_TESTS}::TestRaces::test_a_cancel_while_the_join_is_resolved_comes_too_late",
        ),
    ),
    Mutant(
        "join-awaited-once",
        "If a second message could wait for a join",
        (
            Edit(
                WAITS,
                "elsif known.is_waiting then\n    raise exception using errcode = 'PS065',",
                "elsif false then\n    raise exception using errcode = 'PS065',",
            ),
        ),
        (f"{JOIN_TESTS}::TestBadInput::test_a_join_is_waited_for_once",),
    ),
)

MUTANTS: tuple[Mutant, ...] = _SETTLING + _CLAIMING + _COUNTING + _RESOLVING
