"""Mutants of groups, claims and workers, by the area that lists them."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

GROUPS = "database/sql/penstock/33_groups.sql"
ROUTING = "database/sql/penstock/34_group_routing.sql"
QUEUE = "database/sql/penstock/35_group_queue.sql"
CLAIMS = "database/sql/penstock/36_group_claims.sql"
WORKER = "groups/worker.py"
DECIDE_CLAIM = "groups/decide_claim.py"

DECIDED = "tests/groups/test_decided.py::"
ROUTED = "tests/groups/test_routing.py::"
ORDER = "tests/groups/test_claim_order.py::"
WORKERS = "tests/groups/test_worker.py::"
ENDS = "tests/groups/test_worker_ends.py::"
LOCKS = "tests/groups/test_group_locks.py::"
COSTS = "tests/groups/test_group_costs.py::"
NO_CALL = f"{COSTS}test_no_call_reads_more_after_many_were_handled_under_an_old_snapshot"
FLATNESS = "tests/promises/test_flat.py::"

LEASES = (
    Mutant(
        "endless-lease",
        "If the lease of a claim did not end",
        (Edit(CLAIMS, "claimed.due := clock_timestamp() + lease;", "claimed.due := 'infinity';"),),
        (f"{DECIDED}test_a_claim_has_a_lease_and_a_lapsed_one_can_be_taken_over",),
    ),
    Mutant(
        "lapsed-claims",
        "If a claim whose lease has ended were not given to another worker",
        (Edit(QUEUE, "if ended <> '{}' then", "if false then"),),
        (
            f"{DECIDED}test_a_claim_has_a_lease_and_a_lapsed_one_can_be_taken_over",
            f"{WORKERS}test_a_partition_whose_workers_die_again_and_again_is_parked",
            f"{ORDER}test_many_partitions_whose_leases_end_at_once_are_all_claimed_again",
        ),
    ),
    Mutant(
        "lease-lock",
        "If a claim waited for whoever has locked a partition whose lease has ended",
        (
            Edit(
                QUEUE,
                "order by p.offset_id for update skip locked);",
                "order by p.offset_id for update);",
            ),
        ),
        (f"{LOCKS}test_a_claim_does_not_wait_for_an_ack_after_the_end_of_the_lease",),
    ),
    Mutant(
        "lease-extension",
        "If a worker did not extend its lease",
        (Edit(WORKER, "self._groups.extend(claim, self._lease)", "pass"),),
        (f"{WORKERS}test_the_lease_is_extended_while_the_handler_works",),
    ),
    Mutant(
        "extended-lease",
        "If an extension did not move the end of the lease",
        (
            Edit(
                CLAIMS,
                "extended.due := clock_timestamp() + lease;",
                "extended.due := held.due;",
            ),
        ),
        (
            f"{DECIDED}test_an_extended_claim_is_not_taken_over",
            f"{WORKERS}test_the_lease_is_extended_while_the_handler_works",
        ),
    ),
)

TOKENS = (
    Mutant(
        "claim-token",
        "If whoever held a claim before could still give it back",
        (
            Edit(
                CLAIMS,
                "if held.token = locked_claim.token then",
                "if held.token is not null then",
            ),
        ),
        (
            f"{DECIDED}test_a_stale_ack_raises_and_changes_nothing",
            f"{DECIDED}test_a_claim_has_a_lease_and_a_lapsed_one_can_be_taken_over",
        ),
    ),
    Mutant(
        "claim-of-its-group",
        "If a claim could be given back to another group",
        (Edit(CLAIMS, " and p.group_pk = own.id\n  for update;", "\n  for update;"),),
        (f"{DECIDED}test_an_ack_for_another_groups_offset_raises_and_changes_nothing",),
    ),
    Mutant(
        "repeated-ack",
        "If an acknowledgement that is repeated were an error",
        (
            Edit(
                CLAIMS,
                "elsif held.finished_token = locked_claim.token and held.finished_call = call then",
                "elsif false then",
            ),
        ),
        (
            f"{ORDER}test_an_ack_that_is_repeated_answers_as_the_first_did",
            f"{ORDER}test_a_release_that_is_repeated_answers_as_the_first_did",
            f"{ORDER}test_an_async_ack_and_release_may_be_repeated",
        ),
    ),
    Mutant(
        "repeated-call",
        "If any call with a token that was used were taken for a repeated one",
        (Edit(CLAIMS, " and held.finished_call = call then", " then"),),
        (f"{ORDER}test_another_call_with_a_token_that_was_used_changes_nothing",),
    ),
    Mutant(
        "ack-bounds",
        "If an acknowledgement could go back, or beyond what is routed",
        (
            Edit(
                CLAIMS,
                """  if ack.position <= held.last_position or ack.position > routed_to then
    raise exception using errcode = 'PS047',""",
                """  if false then
    raise exception using errcode = 'PS047',""",
            ),
        ),
        (f"{DECIDED}test_an_offset_does_not_move_backwards",),
    ),
)

STATES = (
    Mutant(
        "ack-lock",
        "If an acknowledgement did not lock its partition",
        (
            Edit(
                CLAIMS,
                """p.group_pk = own.id
  for update;""",
                "p.group_pk = own.id;",
            ),
        ),
        (f"{ROUTED}test_an_ack_while_a_router_is_open_waits_and_sees_what_it_routed",),
    ),
    Mutant(
        "rechecks",
        "If the router forgot the partitions that it could not lock",
        (Edit(ROUTING, "  where o.offset_id <> all (locked)\n", "  where false\n"),),
        (f"{ROUTED}test_a_message_routed_while_an_ack_is_open_wakes_the_partition",),
    ),
    Mutant(
        "recheck-look",
        "If a claim with nothing new in the log did not look at those partitions again",
        (
            Edit(
                ROUTING,
                """      and not exists (
        select from penstock.group_rechecks r
        where r.group_pk = own.id and r.id > progress.rechecked)
""",
                "",
            ),
        ),
        (f"{ROUTED}test_a_message_routed_while_an_ack_is_open_wakes_the_partition",),
    ),
    Mutant(
        "router-waits",
        "If the router waited for a partition that somebody has locked",
        (
            Edit(
                ROUTING,
                """    order by p.offset_id
    for update skip locked);""",
                """    order by p.offset_id
    for update);""",
            ),
        ),
        (f"{LOCKS}test_a_claim_does_not_wait_for_an_ack_that_is_open",),
    ),
    Mutant(
        "removal-lock",
        "If a removal looked for the next message of a partition without its lock",
        (
            Edit(
                ROUTING,
                """      perform from penstock.partitions p where p.offset_id = any (concerned)
      order by p.offset_id for update;
""",
                "",
            ),
        ),
        (f"{ROUTED}test_a_message_that_waits_while_another_is_removed_is_delivered",),
    ),
    Mutant(
        "claim-lock",
        "If a claim waited for a partition that somebody is claiming",
        (
            Edit(
                QUEUE,
                """    order by s.queue_position, s.version limit 1
    for update of p skip locked;
    if not found then
      select p.* into first
      from penstock.partition_states s join penstock.partitions p on p.offset_id = s.offset_id
      where s.group_pk = own.id and s.queue_position is not null
        and (s.queue_position, s.version) >= (claim_cursor.queue_position, claim_cursor.version)
      order by s.queue_position, s.version limit 1
      for update of p skip locked;""",
                """    order by s.queue_position, s.version limit 1
    for update of p;
    if not found then
      select p.* into first
      from penstock.partition_states s join penstock.partitions p on p.offset_id = s.offset_id
      where s.group_pk = own.id and s.queue_position is not null
        and (s.queue_position, s.version) >= (claim_cursor.queue_position, claim_cursor.version)
      order by s.queue_position, s.version limit 1
      for update of p;""",
            ),
        ),
        (f"{LOCKS}test_a_claim_does_not_wait_for_one_that_is_open",),
    ),
    Mutant(
        "narrow-claim-lock",
        "If a claim of fewer types waited for a partition that somebody is claiming",
        (
            Edit(
                QUEUE,
                """_positions_of(type_ids, own, p, s.last_position, routed_to, 1))
    order by s.queue_position, s.version limit 1
    for update of p skip locked;""",
                """_positions_of(type_ids, own, p, s.last_position, routed_to, 1))
    order by s.queue_position, s.version limit 1
    for update of p;""",
            ),
            Edit(
                QUEUE,
                """_positions_of(type_ids, own, p, s.last_position, routed_to, 1))
      order by s.queue_position, s.version limit 1
      for update of p skip locked;""",
                """_positions_of(type_ids, own, p, s.last_position, routed_to, 1))
      order by s.queue_position, s.version limit 1
      for update of p;""",
            ),
        ),
        (f"{LOCKS}test_a_claim_does_not_wait_for_one_that_is_open",),
    ),
    Mutant(
        "claim-without-lock",
        "If a claim did not lock its partition",
        (Edit(QUEUE, "for update of p skip locked;", ";", times=4),),
        (f"{LOCKS}test_a_claim_does_not_wait_for_one_that_is_open",),
    ),
    Mutant(
        "resume-lock",
        "If whoever resumes a partition did not lock it",
        (Edit(CLAIMS, "    order by p.offset_id\n    for update of p);", "  );"),),
        (f"{LOCKS}test_a_second_resume_leaves_the_claim_after_the_first_alone",),
    ),
    Mutant(
        "old-snapshot-ack",
        "If a claim could be given back in a transaction that reads an old snapshot",
        (
            Edit(
                CLAIMS,
                """begin
  perform penstock.refuse_old_snapshot();
  perform from penstock.partitions p""",
                """begin
  perform from penstock.partitions p""",
            ),
        ),
        (f"{ROUTED}test_what_needs_to_know_the_newest_is_refused_in_an_old_snapshot",),
    ),
)

ROUTERS = (
    Mutant(
        "routing-watermark",
        "If messages were routed beyond the watermark",
        (
            Edit(
                ROUTING,
                "until := penstock.watermark_after(progress.routed_to);",
                "until := penstock.last_position();",
            ),
        ),
        (f"{ROUTED}test_a_message_that_commits_late_is_delivered_in_its_place",),
    ),
    Mutant(
        "routing-lock",
        "If two could route a group at once",
        (
            Edit(
                ROUTING,
                "if not pg_try_advisory_xact_lock(1885693286, own.id) then",
                "if false then",
            ),
        ),
        (f"{LOCKS}test_a_claim_does_not_wait_for_one_that_routes_nor_route_the_same",),
    ),
    Mutant(
        "naming-lock",
        "If a new type could be named while somebody routes without it",
        (Edit(ROUTING, "  perform pg_advisory_xact_lock(1885693286, own.id);\n", ""),),
        (f"{LOCKS}test_a_type_that_is_named_while_somebody_routes_is_not_left_out",),
    ),
    Mutant(
        "late-types",
        "If a type that a group names later were routed only from then on",
        (Edit(ROUTING, "progress.backfills := progress.backfills || new_types;", "null;"),),
        (f"{ROUTED}test_a_type_that_is_handled_later_is_routed_from_the_start",),
    ),
    Mutant(
        "late-claims",
        "If a partition could be claimed before the older messages of a new type are routed",
        (
            Edit(
                CLAIMS,
                "    if progress.backfills = '{}' or not exists (",
                "    if true or not exists (",
            ),
        ),
        (f"{LOCKS}test_no_partition_is_claimed_while_an_older_type_is_being_routed",),
    ),
    Mutant(
        "narrowing-lock",
        "If a claim of fewer types made a cursor while another transaction routes",
        (
            Edit(
                ROUTING,
                "  if pg_try_advisory_xact_lock(1885693286, own.id) then",
                "  if true then",
            ),
        ),
        (f"{LOCKS}test_a_claim_of_fewer_types_while_somebody_routes_misses_nothing",),
    ),
    Mutant(
        "reset-lock",
        "If a group could be reset while somebody routes",
        (Edit(GROUPS, "  perform pg_advisory_xact_lock(1885693286, own.id);\n", ""),),
        (f"{LOCKS}test_a_reset_waits_for_the_router_and_makes_the_claim_stale",),
    ),
    Mutant(
        "reset-partition-locks",
        "If a group could be reset while a partition of it is acknowledged",
        (
            Edit(
                GROUPS,
                "  perform from penstock.partitions p where p.group_pk = own.id"
                " order by p.offset_id for update;\n",
                "",
            ),
        ),
        (f"{LOCKS}test_a_reset_waits_for_an_ack_and_remembers_it",),
    ),
    Mutant(
        "declaring-lock",
        "If an attribute could be added to a type while somebody routes it",
        (
            Edit(
                ROUTING,
                """  perform pg_advisory_xact_lock(1885693286, g.id) from penstock.consumer_groups g
  where g.partition_by && attributes order by g.id;
""",
                "",
            ),
        ),
        (f"{LOCKS}test_an_attribute_that_is_declared_while_somebody_routes_is_not_overlooked",),
    ),
    Mutant(
        "routed-again",
        "If what was routed by fewer attributes stayed where it is",
        (
            Edit(
                ROUTING,
                "progress.backfills := progress.backfills || jsonb_build_object(type_id, 0);",
                "null;",
            ),
        ),
        (
            f"{ROUTED}test_an_attribute_that_is_declared_later_partitions_what_was_routed_without_it",
        ),
    ),
    Mutant(
        "partition-by",
        "If a group could be partitioned by other attributes than before",
        (
            Edit(
                ROUTING,
                """  elsif own.partition_by <> names then
    raise exception using errcode = 'PS046',""",
                """  elsif false then
    raise exception using errcode = 'PS046',""",
            ),
        ),
        (f"{DECIDED}test_a_changed_partition_by_is_an_error_until_the_group_is_reset",),
    ),
    Mutant(
        "fanout-slices",
        "If a message for many partitions were taken for done after the first slice",
        (Edit(ROUTING, "if cardinality(slice) < remaining then", "if true then"),),
        (f"{ROUTED}test_a_message_for_more_partitions_than_fit_one_routing_reaches_all",),
    ),
    Mutant(
        "earlier-messages",
        "If a partition began with the message that reveals it",
        (
            Edit(
                ROUTING,
                "select penstock.next_in_feeds(own.id, own.partition_by, n.partition_values,"
                " n.feeds, 0)\n",
                "select penstock.next_in_feeds(own.id, own.partition_by, n.partition_values,"
                " n.feeds, after)\n",
            ),
            Edit(
                ROUTING,
                "insert into penstock.partition_states"
                " (offset_id, group_pk, next_position, queue_position)\n"
                "    select n.offset_id, own.id, f.next_position, f.next_position\n",
                "insert into penstock.partition_states"
                " (offset_id, group_pk, next_position, queue_position, last_position)\n"
                "    select n.offset_id, own.id, f.next_position, f.next_position, after\n",
            ),
        ),
        (f"{ROUTED}test_partial_messages_before_and_after_a_partition_appears_reach_it_in_order",),
    ),
    Mutant(
        "agreement",
        "If two partitions whose hashes are equal were one",
        (
            Edit(
                ROUTING,
                "where a.name = any (t.attributes) and m.data ->> a.name <> a.value)",
                "where false)",
            ),
        ),
        (f"{ORDER}test_partitions_whose_hashes_collide_are_kept_apart",),
    ),
    Mutant(
        "removed-messages",
        "If a partition waited for a message that was removed",
        (Edit(ROUTING, "    if concerned <> '{}' then", "    if false then"),),
        (f"{ROUTED}test_a_parked_partition_whose_message_was_removed_goes_on_with_the_next",),
    ),
)

FLOORS = (
    Mutant(
        "open-at-cursor",
        "If a claim cursor covered what was written by transactions that were open",
        (
            Edit(
                QUEUE,
                "s.xid = any ((claim_cursor).open_xids) and s.queued",
                "false and s.queued",
            ),
        ),
        (f"{ORDER}test_an_ack_that_commits_after_a_claim_cursor_was_made_is_found",),
    ),
    Mutant(
        "after-cursor",
        "If a claim cursor covered what was written after it",
        (
            Edit(
                QUEUE,
                "s.xid >= (claim_cursor).next_xid and s.queued",
                "false and s.queued",
            ),
        ),
        (f"{ORDER}test_a_partition_that_returns_before_the_claim_cursor_is_found",),
    ),
    Mutant(
        "own-cursor",
        "If a claim cursor covered what its own transaction wrote after it",
        (
            Edit(
                QUEUE,
                "    and s.version > (claim_cursor).own_version and s.queued",
                "    and false",
            ),
        ),
        (f"{ORDER}test_what_a_transaction_gives_back_after_it_made_a_claim_cursor_is_found",),
    ),
    Mutant(
        "before-cursor",
        "If partitions before a claim cursor were not listed",
        (
            Edit(
                QUEUE,
                "case when few.enough then coalesce(f.offset_ids, '{}') else '{}' end,",
                "'{}',",
            ),
        ),
        (f"{ORDER}test_a_claim_that_is_rolled_back_after_a_claim_cursor_was_made_is_found",),
    ),
    Mutant(
        "cursor-moves-back",
        "If a claim cursor stayed where it is with more partitions before it than it can list",
        (
            Edit(
                QUEUE,
                "case when few.enough then to_position"
                " else least(f.queue_position, to_position) end,\n"
                "    case when few.enough or f.queue_position is null then to_version else 0 end,",
                "to_position,\n    to_version,",
            ),
        ),
        (f"{ORDER}test_many_claims_that_are_rolled_back_after_a_claim_cursor_was_made_are_found",),
    ),
    Mutant(
        "cursor-of-fewer-types",
        "If a partition that a claim skipped kept its state when a message is routed to it",
        (Edit(ROUTING, "\n      or own.narrowed and f.queue_position is not null", ""),),
        (f"{ORDER}test_a_message_of_a_named_type_for_a_partition_that_was_passed_over_is_found",),
    ),
    Mutant(
        "cursor-lock",
        "If a claim waited for one that makes a cursor",
        (
            Edit(
                QUEUE,
                "if not pg_try_advisory_xact_lock(1885693288, own.id) then",
                "if false then",
            ),
        ),
        (f"{LOCKS}test_a_claim_does_not_wait_for_one_that_makes_a_claim_cursor",),
    ),
)

FAILURES = (
    Mutant(
        "attempts",
        "If attempts were not counted",
        (Edit(CLAIMS, "claimed.attempts := state.attempts + 1;", "claimed.attempts := 1;"),),
        (
            f"{WORKERS}test_a_partition_whose_workers_die_again_and_again_is_parked",
            f"{ENDS}test_a_handler_that_always_ends_the_program_is_parked",
        ),
    ),
    Mutant(
        "parking-partitions",
        "If a partition that cannot be handled were tried for ever",
        (Edit(WORKER, "park = claim.attempts >= self._policy.attempts", "park = False"),),
        (f"{WORKERS}test_a_partition_whose_workers_die_again_and_again_is_parked",),
    ),
    Mutant(
        "not-its-fault",
        "If a handler were at fault where it gets no connection",
        (
            Edit(
                DECIDE_CLAIM,
                "NOT_THE_HANDLER = (DatabaseUnreachable, PoolExhausted, DeclarationBlocked,"
                " IndexingUnfinished)",
                "NOT_THE_HANDLER = ()",
            ),
        ),
        (
            f"{WORKERS}test_a_handler_that_gets_no_connection_is_not_at_fault",
            f"{WORKERS}test_a_handler_whose_outcome_cannot_be_declared_yet_is_not_at_fault",
        ),
    ),
    Mutant(
        "failed-claims",
        "If a worker acknowledged what its handler has failed to handle",
        (
            Edit(
                WORKER,
                "            if not is_interrupt(error):\n"
                "                self._fail(claim, error)\n",
                "            if not is_interrupt(error):\n"
                "                self._settle(claim, None)\n",
            ),
        ),
        (
            f"{WORKERS}test_what_a_failed_handler_wanted_is_not_appended_and_it_is_tried_again",
            f"{DECIDED}test_poison_stops_its_partition_and_not_the_group",
            f"{ENDS}test_any_other_exception_is_a_failure_of_the_handler",
        ),
    ),
)

AT_LEAST_ONCE: tuple[Mutant, ...] = (*LEASES, *TOKENS, *STATES, *ROUTERS, *FLOORS, *FAILURES)

EXACTLY_ONCE: tuple[Mutant, ...] = (
    Mutant(
        "worker-transaction",
        "If a worker appended and acknowledged in two transactions",
        (
            Edit(
                WORKER,
                """        with self._store.transaction() as transaction:
            if messages:
                transaction.append(messages, guard=guard)
            transaction.groups.ack(claim, position)""",
                """        if messages:
            self._store.append(messages, guard=guard)
        self._groups.ack(claim, position)""",
            ),
        ),
        (f"{WORKERS}test_a_claim_that_was_taken_over_appends_nothing",),
    ),
    Mutant(
        "stale-claims",
        "If the acknowledgement of a claim that was taken over were ignored",
        (
            Edit(
                CLAIMS,
                "  raise exception using errcode = 'PS045',",
                "  return null;\n  raise exception using errcode = 'PS045',",
            ),
        ),
        (
            f"{WORKERS}test_a_claim_that_was_taken_over_appends_nothing",
            f"{DECIDED}test_a_stale_ack_raises_and_changes_nothing",
            f"{DECIDED}test_a_reset_moves_offsets_back_and_invalidates_claims_in_flight",
        ),
    ),
    Mutant(
        "worker-guard",
        "If a worker appended without the guard of its claim",
        (
            Edit(
                WORKER,
                "transaction.append(messages, guard=guard)",
                "transaction.append(messages)",
            ),
        ),
        (f"{WORKERS}test_after_a_conflict_it_decides_again",),
    ),
    Mutant(
        "claim-low",
        "If the guard of a claim did not cover writers that were open",
        (
            Edit(
                CLAIMS, "    return penstock.complete_to();", "    return penstock.last_position();"
            ),
        ),
        (f"{DECIDED}test_a_writer_that_was_open_at_the_claim_is_a_conflict_once_it_commits",),
    ),
)
FLAT: tuple[Mutant, ...] = (
    Mutant(
        "idle-claim",
        "If a claim that finds nothing looked at all partitions",
        (
            Edit(
                CLAIMS,
                """      where s.queue_position is not null or s.due <= moment) as may_have_work""",
                """      where s.queue_position is not null or s.due <= moment)
    or exists (
      select from penstock.partitions p
      cross join lateral penstock.latest_partition_state(p.offset_id) s
      where p.group_pk = g.id and s.queue_position is not null) as may_have_work""",
            ),
        ),
        (f"{FLATNESS}test_a_claim_that_finds_nothing_reads_next_to_nothing",),
    ),
    Mutant(
        "queue-order",
        "If a claim sorted all partitions that are ready",
        (
            Edit(
                QUEUE,
                "        and (s.queue_position, s.version)"
                " >= (claim_cursor.queue_position, claim_cursor.version)\n"
                "      order by s.queue_position, s.version limit 1\n",
                "        and (s.queue_position, s.version)"
                " >= (claim_cursor.queue_position, claim_cursor.version)\n"
                "      order by s.queue_position + 0, s.version limit 1\n",
            ),
        ),
        (f"{FLATNESS}test_an_operation_reads_as_much_with_many_partitions[claim]",),
    ),
    Mutant(
        "batch-limit",
        "If a claim read all messages of its partition",
        (
            Edit(
                QUEUE,
                """pending.partition_values))
    order by g.global_position limit most
  ) n
  order by n.global_position limit most
$$;

-- The same, of some types only.""",
                """pending.partition_values))
    order by g.global_position
  ) n
  order by n.global_position + 0 limit most
$$;

-- The same, of some types only.""",
            ),
        ),
        (f"{FLATNESS}test_an_operation_reads_as_much_with_a_hot_key[claim]",),
    ),
    Mutant(
        "claim-cursors",
        "If a claim began at the beginning of the queue",
        (Edit(QUEUE, "and f.next_xid <= pg_snapshot_xmax(pg_current_snapshot())", "and false"),),
        (f"{NO_CALL}[one_device-oldest]",),
    ),
    Mutant(
        "state-versions",
        "If the state of a partition were updated in place",
        (
            Edit(
                GROUPS,
                """finished_token, finished_call)
  values
    (new.offset_id,""",
                """finished_token, finished_call, version)
  overriding system value values
    (new.offset_id,""",
            ),
            Edit(
                GROUPS,
                "new.parked_at, new.finished_token, new.finished_call);",
                "new.parked_at, new.finished_token, new.finished_call, old.version);",
            ),
        ),
        (f"{NO_CALL}[one_device-oldest]",),
    ),
    Mutant(
        "turns",
        "If a partition that is always ready came before all others",
        (Edit(GROUPS, "then greatest(next_position, routed_to + 1)", "then next_position"),),
        (
            f"{ORDER}test_two_hot_partitions_do_not_hold_up_the_others",
            f"{ORDER}test_partitions_that_are_always_ready_are_handled_one_after_the_other",
        ),
    ),
    Mutant(
        "extended-cursor",
        "If a worker that only extends its lease made no claim cursor",
        (
            Edit(
                CLAIMS,
                "  perform penstock.refresh_claim_cursors("
                "own, claim_cursor, type_ids, routed_to);\n",
                "",
            ),
        ),
        (f"{COSTS}test_a_claim_that_is_extended_for_long_costs_idle_workers_no_more",),
    ),
    Mutant(
        "retention-cursor",
        "If the first unhandled message were searched from the start of the index",
        (
            Edit(
                QUEUE,
                """       and s.parked_at is null
       and (s.next_position, s.version) >= (claim_cursor.next_position, claim_cursor.next_version)
     order by""",
                """       and s.parked_at is null
     order by""",
            ),
        ),
        (f"{COSTS}test_the_first_unhandled_message_is_found_without_those_that_were_handled",),
    ),
    Mutant(
        "narrow-cursors",
        "If a claim of fewer types went through the partitions of others each time",
        (
            Edit(
                CLAIMS,
                "if claim_cursor.group_pk is not null and (own.narrowed or only_ids is null) then",
                "if claim_cursor.group_pk is not null and only_ids is null then",
            ),
            Edit(
                CLAIMS,
                "  if own.narrowed or only_ids is null then\n",
                "  if only_ids is null then\n",
            ),
        ),
        (f"{COSTS}test_a_backlog_without_workers_costs_a_claim_nothing[not_handled]",),
    ),
    Mutant(
        "feed-types",
        "If a claim of fewer types went through the messages of others",
        (
            Edit(
                QUEUE,
                "g.feed = f.feed and g.type_id = t.type_id\n",
                "g.feed = f.feed and g.type_id + 0 = t.type_id\n",
            ),
        ),
        (f"{COSTS}test_a_long_feed_of_a_type_that_a_claim_does_not_name_is_not_read",),
    ),
)
