"""Promise 5, where an operator removes a consumer, a session or a group."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SESSIONS = "database/sql/penstock/20_sessions.sql"
POSITIONS = "database/sql/penstock/21_positions.sql"
GROUPS = "database/sql/penstock/33_groups.sql"
ROUTING = "database/sql/penstock/34_group_routing.sql"
REMOVAL = "database/sql/penstock/37_group_removal.sql"
SESSION_TESTS = "tests/queues/test_sessions.py::TestRemoval"
CONSUMER_TESTS = "tests/consumers/test_removal.py"
GROUP_TESTS = "tests/groups/test_removal.py"
WAITING = f"{GROUP_TESTS}::TestMeanwhile::test_who_waits_for_a_removal_finds_no_group"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "removed-session-returns",
        "If the epochs of a session that was removed were counted again from the first",
        (
            Edit(
                SESSIONS,
                "select hashtextextended(gen_random_uuid()::text, 0) & 4611686018427387903",
                "select 0::bigint",
            ),
        ),
        (f"{SESSION_TESTS}::test_an_open_session_is_fenced_for_good",),
    ),
    Mutant(
        "remove-session-lock",
        "If a session could be removed while its offset is stored",
        (
            Edit(
                SESSIONS,
                """(stream_name, consumer_id, true);
begin
  delete from""",
                """(stream_name, consumer_id, false);
begin
  delete from""",
            ),
        ),
        (f"{SESSION_TESTS}::test_a_commit_under_way_is_removed_with_the_rest",),
    ),
    Mutant(
        "remove-position-stream-lock",
        "If a consumer could be removed while it writes its position",
        (Edit(POSITIONS, "    perform penstock.lock_stream(stream);\n", "    null;\n"),),
        (f"{CONSUMER_TESTS}::test_a_save_under_way_is_removed_with_the_rest[blocking-stream]",),
    ),
    Mutant(
        "remove-position-lock",
        "If a consumer could be removed while its position is stored",
        (
            Edit(
                POSITIONS,
                "latest_position(category || '-' || consumer_id, true)",
                "latest_position(category || '-' || consumer_id, false)",
            ),
        ),
        (f"{CONSUMER_TESTS}::test_a_save_under_way_is_removed_with_the_rest[blocking-table]",),
    ),
    Mutant(
        "remove-group-lock",
        "If a group could be removed while somebody routes",
        (Edit(REMOVAL, "  perform pg_advisory_xact_lock(1885693286, own.id);\n", ""),),
        (f"{GROUP_TESTS}::TestMeanwhile::test_what_is_being_routed_is_removed_too",),
    ),
    Mutant(
        "removed-states-first",
        "If the state of a partition were deleted before the partition, which an ack holds locked",
        (
            Edit(
                REMOVAL,
                """    delete from penstock.partitions p where p.offset_id = any (offset_ids);
    delete from penstock.partition_states s where s.offset_id = any (offset_ids);
""",
                """    delete from penstock.partition_states s where s.offset_id = any (offset_ids);
    delete from penstock.partitions p where p.offset_id = any (offset_ids);
""",
            ),
        ),
        (f"{GROUP_TESTS}::TestMeanwhile::test_an_ack_under_way_leaves_no_state_behind",),
    ),
    Mutant(
        "removed-group-unrecorded",
        "If nothing were kept of a group whose rows are still being deleted",
        (
            Edit(
                REMOVAL,
                "  insert into penstock.removed_groups (id, group_id)"
                " values (own.id, own.group_id);\n",
                "",
            ),
        ),
        (
            f"{GROUP_TESTS}::test_nothing_of_it_is_left",
            f"{GROUP_TESTS}::test_a_removal_that_was_cut_short_is_finished_by_the_next",
        ),
    ),
    Mutant(
        "reset-of-a-removed-group",
        "If a reset that waited for the removal of its group went on",
        (
            Edit(
                GROUPS,
                "    perform penstock.refuse_unknown_group(group_id);  -- it was removed meanwhile",
                "    null;",
            ),
        ),
        (f"{WAITING}[blocking-reset]",),
    ),
    Mutant(
        "claim-of-a-removed-group",
        "If a claim that waited for the removal of its group went on",
        (
            Edit(
                ROUTING,
                "    perform penstock.refuse_unknown_group(group_id);  -- it was removed meanwhile",
                "    null;",
            ),
        ),
        (f"{WAITING}[blocking-claim]",),
    ),
    Mutant(
        "group-removed-twice",
        "If two operators could remove one group at the same time",
        (
            Edit(
                REMOVAL,
                "    perform penstock.refuse_unknown_group(group_id);"
                "  -- another transaction removed it",
                "    null;",
            ),
        ),
        (f"{WAITING}[blocking-remove]",),
    ),
)
