"""Promise 6: the cost of an operation does not grow."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SQL = "database/sql/penstock"
CATEGORY_READ = f"{SQL}/06_category_read.sql"
STREAM_READ = "database/sql/message_store/07_stream_reads.sql"
WRITE = "database/sql/message_store/06_write_message.sql"
OUTBOX = f"{SQL}/40_outbox.sql"
JOINS = f"{SQL}/41_joins.sql"
WAITS = f"{SQL}/42_join_waits.sql"

OURS = "tests/log/test_plans.py::TestItReadsNoMoreThanItNeeds::test_in_a_log_of_ours"
BESIDE = "tests/log/test_plans.py::TestItReadsNoMoreThanItNeeds::test_beside_message_db"
FLAT = "tests/promises/test_flat.py"
MANY_PARTITIONS = f"{FLAT}::test_an_operation_reads_as_much_with_many_partitions"
HOT_KEY = f"{FLAT}::test_an_operation_reads_as_much_with_a_hot_key"
REPLACED = f"{FLAT}::test_what_is_replaced_each_time_is_found_at_once_while_vacuum_is_held_back"
GUARDS = "tests/promises/test_flat_guards.py"
COSTS = "tests/outbox/test_costs.py"
RETENTION = "tests/log/test_retention_cost.py"

_READS: tuple[Mutant, ...] = (
    Mutant(
        "flat-category-index",
        "If a category were read along another index than its own",
        (
            Edit(
                CATEGORY_READ,
                "      where (message_store.category(m.stream_name), m.global_position)"
                " >= (category, first)\n"
                "        and (message_store.category(m.stream_name), m.global_position)"
                " <= (category, until)\n"
                "        and (correlation",
                "      where message_store.category(m.stream_name) = category\n"
                "        and m.global_position >= first and m.global_position <= until\n"
                "        and (correlation",
            ),
            Edit(
                CATEGORY_READ,
                "      order by message_store.category(m.stream_name), m.global_position\n"
                "      limit most;",
                "      order by m.global_position\n      limit most;",
            ),
        ),
        (OURS, BESIDE),
    ),
    Mutant(
        "flat-category-sort",
        "If a category could be read whole and then sorted",
        (
            Edit(
                CATEGORY_READ,
                "set enable_sort = off set plan_cache_mode = force_generic_plan",
                "set plan_cache_mode = force_generic_plan",
            ),
        ),
        (f"{OURS}[never gathered-a page of the log-force_generic_plan]",),
    ),
    Mutant(
        "flat-stream-sort",
        "If a stream could be read whole and then sorted",
        (
            Edit(
                STREAM_READ,
                "returns setof message_store.message language plpgsql set enable_sort = off",
                "returns setof message_store.message language plpgsql",
                times=2,
            ),
        ),
        (f"{OURS}[never gathered-a stream's last message-force_generic_plan]",),
    ),
    Mutant(
        "flat-head",
        "If the head of a category were looked for from its beginning",
        (
            Edit(
                CATEGORY_READ,
                "order by message_store.category(m.stream_name) desc,"
                " m.global_position desc limit 1",
                "order by m.global_position + 0 desc limit 1",
            ),
        ),
        (
            f"{OURS}[fresh-the head of a rare category-force_generic_plan]",
            f"{BESIDE}[the head of a rare category-force_generic_plan]",
        ),
    ),
    Mutant(
        "flat-correlation",
        "Without the index of correlation ids",
        (
            Edit(
                CATEGORY_READ,
                "  (metadata ->> 'correlation_id'), message_store.category(stream_name)\n)",
                "  (metadata ->> 'causation_id'), message_store.category(stream_name)\n)",
            ),
        ),
        (
            f"{OURS}[fresh-a rare category, correlated by id with the common one"
            "-force_generic_plan]",
        ),
    ),
    Mutant(
        "flat-write",
        "If a write looked at all of its stream for the version",
        (
            Edit(
                WRITE,
                "    select m.position from message_store.messages m\n"
                "    where m.stream_name = write_message.stream_name\n"
                "    order by m.position desc limit 1), -1);",
                "    select max(m.position + 0) from message_store.messages m\n"
                "    where m.stream_name = write_message.stream_name), -1);",
            ),
        ),
        (f"{OURS}[fresh-a write-force_generic_plan]",),
    ),
    Mutant(
        "flat-write-log",
        "If a write looked at all of the log for its stream",
        (
            Edit(
                WRITE,
                "where m.stream_name = write_message.stream_name\n    order by",
                "where m.stream_name || '' = write_message.stream_name\n    order by",
            ),
        ),
        (f"{MANY_PARTITIONS}[write]", f"{HOT_KEY}[write]"),
    ),
    Mutant(
        "flat-tail",
        "If a session looked at all of its queue for the tail",
        (
            Edit(
                f"{SQL}/20_sessions.sql",
                "select max(m.position) + 1 from message_store.messages m",
                "select max(m.position + 1) from message_store.messages m",
            ),
        ),
        ("tests/queues/test_session_faults.py::TestCost::test_does_not_grow_with_the_queue",),
    ),
)

_CLAIMS: tuple[Mutant, ...] = (
    Mutant(
        "flat-claim-partitions",
        "If a claim of a partition looked at all of them",
        (
            Edit(
                f"{SQL}/35_group_queue.sql",
                "        and (s.queue_position, s.version)"
                " >= (claim_cursor.queue_position, claim_cursor.version)\n"
                "      order by s.queue_position, s.version limit 1",
                "        and (s.queue_position, s.version)"
                " >= (claim_cursor.queue_position, claim_cursor.version)\n"
                "      order by s.queue_position + 0, s.version limit 1",
            ),
        ),
        (f"{MANY_PARTITIONS}[claim]", f"{MANY_PARTITIONS}[claim_and_acknowledge]"),
    ),
    Mutant(
        "flat-claim-low",
        "If a claim of a partition looked through the log for the end of what is complete",
        (
            Edit(
                f"{SQL}/31_boundaries.sql",
                "where m.global_position <= last_message_until.position"
                " order by m.global_position desc limit 1",
                "where m.global_position <= last_message_until.position"
                " order by m.global_position + 0 desc limit 1",
            ),
        ),
        (
            f"{MANY_PARTITIONS}[claim]",
            f"{HOT_KEY}[claim]",
            f"{HOT_KEY}[claim_and_acknowledge]",
        ),
    ),
)

_GUARDS: tuple[Mutant, ...] = (
    Mutant(
        "flat-guard-low",
        "If a guard looked at all that it covers",
        (
            Edit(
                f"{SQL}/32_append_one.sql",
                "and a.global_position > guard_low);",
                "and a.global_position + 0 > guard_low);",
            ),
        ),
        (f"{FLAT}::test_a_guard_reads_as_much_however_much_it_covers",),
    ),
    Mutant(
        "flat-guard-seen",
        "If a guard looked again at what it has seen",
        (
            Edit(
                f"{SQL}/31_boundaries.sql",
                "    return after_low - seen;\n",
                "    return after_low;\n",
            ),
        ),
        (
            f"{GUARDS}::test_the_guard_of_a_bulk_append_costs_as_much_as_that_of_a_few"
            "[attribute-append_alone-held back]",
        ),
    ),
    Mutant(
        "flat-guard-runs",
        "If a guard listed what it has seen one by one",
        (
            Edit(
                "log/guard.py",
                "        if result and first <= result[-1][1] + 1:\n",
                "        if False:\n",
            ),
        ),
        (
            f"{GUARDS}::test_the_guard_of_a_bulk_append_costs_as_much_as_that_of_a_few"
            "[attribute-append_alone-held back]",
            f"{GUARDS}::test_a_read_above_a_held_watermark_returns_what_was_seen_once",
        ),
    ),
    Mutant(
        "flat-guard-locks",
        "If a guard of many conditions took a lock for each",
        (
            Edit(
                f"{SQL}/32_append.sql",
                "  if held + cardinality(exclusive) >= 500 then\n    held :=",
                "  if false then\n    held :=",
            ),
        ),
        (f"{GUARDS}::test_a_guard_of_many_conditions_takes_few_locks",),
    ),
)

_VERSIONS: tuple[Mutant, ...] = (
    Mutant(
        "flat-positions",
        "If the position of a consumer were updated in place",
        (
            Edit(
                f"{SQL}/21_positions.sql",
                "values (replace_position.consumer_id, coalesce(old.version + 1, 0),",
                "values (replace_position.consumer_id, coalesce(old.version, 0),",
            ),
        ),
        (f"{REPLACED}[a consumer's position]",),
    ),
    Mutant(
        "flat-sessions",
        "If the offset of a session were updated in place",
        (
            Edit(
                f"{SQL}/20_sessions.sql",
                "replace_session.consumer_id, coalesce(old.version + 1, 0),",
                "replace_session.consumer_id, coalesce(old.version, 0),",
            ),
        ),
        (f"{REPLACED}[a session's offset]",),
    ),
    Mutant(
        "flat-deliveries",
        "If the last batch of a delivery were updated in place",
        (
            Edit(
                f"{SQL}/51_deliveries.sql",
                "values (new.source, coalesce(old.version + 1, 0),",
                "values (new.source, coalesce(old.version, 0),",
            ),
        ),
        (f"{REPLACED}[a delivery]",),
    ),
)

_OUTBOX: tuple[Mutant, ...] = (
    Mutant(
        "flat-outbox-cursor",
        "If the outbox were claimed from its beginning each time",
        (
            Edit(
                OUTBOX,
                "after_due constant timestamptz := coalesce(cursor_due, '-infinity');",
                "after_due constant timestamptz := '-infinity';",
            ),
        ),
        (
            f"{FLAT}::test_a_claim_of_the_outbox_goes_on_from_its_floor",
            f"{COSTS}::test_the_twentieth_call_of_a_session_costs_what_the_first_did[fresh-claims]",
        ),
    ),
    Mutant(
        "flat-outbox-dispatcher-cursor",
        "If a dispatcher did not continue from its cursor",
        (
            Edit(
                "outbox/in_progress.py",
                "self.is_from_start = from_start or",
                "self.is_from_start = True or",
            ),
        ),
        (
            "tests/outbox/test_outbox_faults.py::test_a_dispatcher_goes_on_from_its_cursor",
            "tests/outbox/test_dispatcher.py::TestLeases"
            "::test_a_cursor_is_where_the_last_claim_began_between_claims_from_the_start",
        ),
    ),
    Mutant(
        "flat-outbox-due",
        "If a claim read messages that are not due yet",
        (Edit(OUTBOX, ".due <= moment", ".due <= clock_timestamp()", times=3),),
        (f"{FLAT}::test_a_claim_of_the_outbox_does_not_read_what_is_not_due_yet",),
    ),
    Mutant(
        "flat-outbox-topics",
        "If a claim read messages of topics that it does not handle",
        (
            Edit(
                OUTBOX,
                "where r.state = 'ready' and r.topic = t.topic and",
                "where r.state = 'ready' and r.topic || '' = t.topic and",
            ),
        ),
        (f"{FLAT}::test_a_claim_of_the_outbox_does_not_read_topics_that_it_does_not_handle",),
    ),
    Mutant(
        "flat-outbox-ready-topics",
        "If the topics that wait were found by reading their messages",
        (
            Edit(
                OUTBOX,
                "where o.state = 'ready' and o.topic > topics.topic order by",
                "where o.state = 'ready' and o.topic || '' > topics.topic order by",
            ),
        ),
        (f"{FLAT}::test_the_topics_that_wait_are_found_without_reading_their_messages",),
    ),
    Mutant(
        "flat-outbox-plans",
        "If a session kept the plans that were good for an empty outbox",
        (
            Edit(
                WAITS,
                "'alter function %s set enable_seqscan = off set enable_bitmapscan = off'\n"
                "      ' set enable_sort = off set enable_hashjoin = off"
                " set enable_mergejoin = off'",
                "'alter function %s set jit = off'",
            ),
        ),
        (
            f"{COSTS}::test_the_twentieth_call_of_a_session_costs_what_the_first_did"
            "[of empty tables-nests]",
        ),
    ),
    Mutant(
        "flat-join-steps",
        "If the steps of a join were counted in one row that is updated for each",
        (
            Edit(
                JOINS,
                "set version = s.version + 1, updated_at",
                "set version = s.version, updated_at",
            ),
        ),
        (
            f"{COSTS}::test_the_2000th_step_enqueued_costs_what_the_100th_did[True]",
            f"{COSTS}::test_the_2000th_ack_costs_what_the_100th_did[True]",
        ),
    ),
)

_RETENTION: tuple[Mutant, ...] = (
    Mutant(
        "flat-retention-walk",
        "If a batch of retention began at the first message again",
        (
            Edit(
                f"{SQL}/22_retention.sql",
                "> (target, coalesce(after, -1))",
                "> (target, -1)",
            ),
        ),
        (f"{RETENTION}::test_a_batch_reads_as_many_pages_at_the_end_of_a_run_as_at_its_beginning",),
    ),
    Mutant(
        "flat-retention-bounds",
        "If retention read what goes to find what stays",
        (
            Edit(
                f"{SQL}/22_retention.sql",
                "      order by message_store.category(m.stream_name) desc,"
                " m.global_position desc\n"
                "      offset keep_count",
                "      order by m.global_position + 0 desc\n      offset keep_count",
            ),
        ),
        (f"{RETENTION}::test_the_bounds_are_found_without_reading_what_goes",),
    ),
)

MUTANTS: tuple[Mutant, ...] = _READS + _CLAIMS + _GUARDS + _VERSIONS + _OUTBOX + _RETENTION
