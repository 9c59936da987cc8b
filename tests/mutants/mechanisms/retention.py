"""Promise 1, where messages are removed on purpose."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

RETENTION = "database/sql/penstock/22_retention.sql"
IDENTITY_TESTS = "tests/log/test_identity.py"
PROCESSORS_TESTS = "tests/pipeline/steps/test_waiting_messages.py"
RETENTION_TESTS = "tests/log/test_retention.py"
OWN_TESTS = f"{RETENTION_TESTS}::TestStreamsOfTheirOwn"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "retention-with-holes",
        "If retention went by each message's time, and not by the first that is too new",
        (
            Edit(
                RETENTION,
                "    where k.place is null or n.place < k.place\n",
                "    where keep_since is null or n.time < keep_since at time zone 'utc'\n",
            ),
        ),
        (f"{RETENTION_TESTS}::TestCategory::test_only_a_prefix_goes_whatever_the_clock_said",),
    ),
    Mutant(
        "retention-of-consumers",
        "If retention removed what consumers, groups and pipelines have not read",
        (Edit(RETENTION, "  where not ignore_consumers;", "  where false;"),),
        (
            f"{RETENTION_TESTS}::TestProtection::test_what_a_consumer_has_not_read_stays",
            f"{RETENTION_TESTS}::TestProtection::test_one_whose_position_is_garbled_keeps_all",
            f"{RETENTION_TESTS}::test_what_a_partitioned_group_has_not_handled_stays",
        ),
    ),
    Mutant(
        "retention-of-garbled-positions",
        "If a consumer whose position cannot be read were taken for one that has read all",
        (
            Edit(
                RETENTION,
                "coalesce(penstock.position_in(last.data), 0) + 1",
                "coalesce(penstock.position_in(last.data), 9223372036854775806) + 1",
            ),
        ),
        (f"{RETENTION_TESTS}::TestProtection::test_one_whose_position_is_garbled_keeps_all",),
    ),
    Mutant(
        "retention-of-sessions",
        "If retention removed what sessions have not read",
        (
            Edit(
                RETENTION,
                "penstock.sessions_of(streams.stream_name) s\n",
                "penstock.sessions_of(streams.stream_name) s where false\n",
            ),
        ),
        (f"{RETENTION_TESTS}::TestProtection::test_what_a_session_has_not_read_stays",),
    ),
    Mutant(
        "retention-of-pipelines",
        "If retention removed what a pipeline's processor of a category has not read",
        (Edit(RETENTION, "      where t.queue = slowest_consumer.category", "      where false"),),
        (
            f"{RETENTION_TESTS}::TestProtection::test_what_a_pipeline_has_not_read_stays[order]",
            f"{PROCESSORS_TESTS}::test_retention_spares_what_it_has_not_read[category-number]",
            f"{PROCESSORS_TESTS}::test_before_its_first_step_it_lags_and_keeps_its_messages_too"
            "[waits_for_another_input]",
        ),
    ),
    Mutant(
        "retention-of-pipelines-of-streams",
        "If retention removed what a pipeline's processor of one stream has not read",
        (
            Edit(
                RETENTION,
                "    where not message_store.is_category(t.queue) and",
                "    where false and",
            ),
        ),
        (f"{RETENTION_TESTS}::TestProtection::test_what_a_pipeline_has_not_read_stays[order-0]",),
    ),
    Mutant(
        "retention-asks-once",
        "If a run of retention asked once, at its begin, who has read how far",
        (
            Edit(
                RETENTION,
                "  where not ignore_consumers;",
                "  where not ignore_consumers and after is null;",
            ),
        ),
        (
            f"{RETENTION_TESTS}::TestProtection"
            "::test_one_that_is_put_back_while_a_run_goes_on_loses_no_more",
        ),
    ),
    Mutant(
        "retention-above-the-watermark",
        "If retention removed what readers may not rely on yet",
        (
            Edit(
                RETENTION,
                "global_bound := penstock.watermark() + 1;",
                "global_bound := penstock.last_position() + 1;",
            ),
        ),
        (f"{RETENTION_TESTS}::TestCategory::test_what_readers_may_not_rely_on_yet_stays",),
    ),
    Mutant(
        "retention-of-the-last",
        "If retention removed the last message of a stream, and so its version",
        (Edit(RETENTION, "  where o.can_go;", "  where true;"),),
        (
            f"{RETENTION_TESTS}::TestStream::test_the_last_message_stays_so_that_positions_go_on",
            f"{RETENTION_TESTS}::TestCategory::test_the_last_message_of_each_stream_stays",
        ),
    ),
    Mutant(
        "retention-of-no-stream-of-its-own",
        "If retention kept the only message of a stream that is named after it",
        (Edit(RETENTION, "      or n.is_own and", "      or false and"),),
        (
            f"{OWN_TESTS}::test_go_whole",
            f"{OWN_TESTS}::test_as_the_sink_and_pipelines_publish_them",
        ),
    ),
    Mutant(
        "retention-of-entities",
        "If retention removed every stream with one message, whatever its name",
        (
            Edit(
                RETENTION,
                "m.position = 0 and message_store.id(m.stream_name) = m.id::text",
                "m.position = 0",
                times=2,
            ),
        ),
        (f"{OWN_TESTS}::test_one_with_another_id_in_its_name_stays",),
    ),
    Mutant(
        "retention-of-the-head",
        "If retention removed the last message of a category, and so moved its head back",
        (Edit(RETENTION, "n.is_own and n.global_position < head and", "n.is_own and"),),
        (
            f"{OWN_TESTS}::test_the_last_of_a_category_stays_so_that_its_head_does_not_go_back",
            f"{OWN_TESTS}::test_nor_does_it_while_a_transaction_is_open",
        ),
    ),
    Mutant(
        "retention-of-the-readable-head",
        "If retention kept the last message of a category, and not the last that can be read",
        (
            Edit(
                RETENTION,
                "penstock.category_head(category, penstock.watermark())",
                "penstock.category_head(category, penstock.last_position())",
            ),
        ),
        (f"{OWN_TESTS}::test_nor_does_it_while_a_transaction_is_open",),
    ),
    Mutant(
        "retention-of-a-session-s-stream",
        "If retention removed a whole stream that a session has read, and so its offset's record",
        (Edit(RETENTION, "< head and r.stream_name is null as can_go", "< head as can_go"),),
        (f"{OWN_TESTS}::test_one_that_a_session_has_read_stays_for_its_offset",),
    ),
    Mutant(
        "removed-stream-is-another-log",
        "If a stream that retention removed whole were taken for a sign of another log",
        (
            Edit(
                "database/sql/penstock/08_identity.sql",
                "          or message_store.id(target) = id::text and exists (",
                "          or false and exists (",
            ),
        ),
        (f"{OWN_TESTS}::test_a_reader_of_a_removed_one_resumes",),
    ),
    Mutant(
        "retention-unrecorded",
        "If nothing were kept of what retention removed",
        (Edit(RETENTION, "  if gone.count > 0 then", "  if false then"),),
        (
            f"{RETENTION_TESTS}::TestFallenBehind::test_a_consumer_learns_how_much_it_missed",
            f"{IDENTITY_TESTS}::test_a_message_that_retention_removed_is_resumed_after",
        ),
    ),
    Mutant(
        "retention-of-the-unrouted",
        "If retention removed what a group has not routed",
        (Edit(RETENTION, "least(p.routed_to + 1, penstock", "least(penstock"),),
        (f"{RETENTION_TESTS}::test_what_a_partitioned_group_has_not_routed_stays",),
    ),
    Mutant(
        "retention-of-the-unhandled",
        "If retention removed what a group has routed and not handled",
        (
            Edit(
                RETENTION,
                "p.routed_to + 1, penstock.first_unhandled(g.id), parked",
                "p.routed_to + 1, parked",
            ),
        ),
        (f"{RETENTION_TESTS}::test_what_a_partitioned_group_has_not_handled_stays",),
    ),
    Mutant(
        "retention-of-what-is-routed-again",
        "If retention removed what a group has to route again, for an attribute declared later",
        (
            Edit(
                RETENTION,
                "t.type_id = l.key::integer)) as needs",
                "t.type_id = l.key::integer and false)) as needs",
            ),
        ),
        (f"{RETENTION_TESTS}::test_what_a_partitioned_group_has_to_route_again_stays",),
    ),
    Mutant(
        "retention-of-the-parked",
        "If retention removed what waits in a partition that is parked",
        (
            Edit(
                RETENTION,
                "first_unhandled(g.id), parked.next_position, (",
                "first_unhandled(g.id), (",
            ),
        ),
        (f"{RETENTION_TESTS}::test_what_a_parked_partition_has_not_handled_stays",),
    ),
    Mutant(
        "retention-after-a-reset",
        "If a group that was reset held nothing back until its next claim",
        (
            Edit(
                RETENTION,
                "g.partition_by is not null or g.replayed_by is not null",
                "g.partition_by is not null",
            ),
        ),
        (
            "tests/groups/test_routing.py"
            "::test_after_a_reset_retention_still_spares_what_the_group_needs",
        ),
    ),
)
