"""Promise 2, where messages are not in the table any more: archived ones, and removed ones."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

STUBS = "database/sql/penstock/24_archived_attributes.sql"
ATTRIBUTES = "database/sql/penstock/30_attributes.sql"
BOUNDARIES = "database/sql/penstock/31_boundaries.sql"
APPEND_ONE = "database/sql/penstock/32_append_one.sql"
ROUTING = "database/sql/penstock/34_group_routing.sql"
CLAIMS = "database/sql/penstock/36_group_claims.sql"

TESTS = "tests/log/test_archived_guards.py"
READS, GUARDS, REMOVED, DECLARING = (
    f"{TESTS}::Test{name}" for name in ("Reads", "Guards", "Removed", "Declaring")
)
GROUPS = "tests/groups/test_archived_groups.py"
FOUND = f"{READS}::test_archived_messages_are_found_by_their_attributes"
ARCHIVED_SINCE = f"{GUARDS}::test_what_was_written_and_archived_since_is_a_conflict"
REMOVED_SINCE = f"{REMOVED}::test_what_was_written_and_removed_since_is_a_conflict"

ARCHIVED = (
    Mutant(
        "index-of-archived-messages",
        "If messages that are archived were taken out of the index",
        (
            Edit(
                ATTRIBUTES,
                "select from penstock.archived_messages a where a.global_position ="
                " m.global_position));",
                "select from penstock.archived_messages a where false));",
            ),
        ),
        (FOUND, f"{ARCHIVED_SINCE}[False]", f"{ARCHIVED_SINCE}[True]"),
    ),
    Mutant(
        "archived-matches",
        "If conditions were compared with the messages of the table only",
        (
            Edit(
                BOUNDARIES,
                "select m.global_position, m.data from penstock.indexed_messages m",
                "select m.global_position, m.data from message_store.messages m",
            ),
        ),
        (FOUND, f"{ARCHIVED_SINCE}[False]", f"{ARCHIVED_SINCE}[True]"),
    ),
    Mutant(
        "archived-rows-of-a-read",
        "If a read by conditions returned the messages of the table only",
        (
            Edit(
                BOUNDARIES,
                "select m.* from penstock.indexed_messages m",
                "select m.* from message_store.messages m",
            ),
        ),
        (FOUND, f"{READS}::test_some_archived_and_some_not"),
    ),
    Mutant(
        "archived-rows-of-a-claim",
        "If a claim returned the messages of the table only",
        (
            Edit(
                CLAIMS,
                "    from penstock.indexed_messages m\n",
                "    from message_store.messages m\n",
            ),
        ),
        (
            f"{GROUPS}::test_messages_that_are_moved_while_they_are_being_claimed_are_not_lost",
            f"{GROUPS}::test_a_group_that_starts_late_handles_archived_messages",
        ),
    ),
    Mutant(
        "archived-messages-of-a-route",
        "If a group routed the messages of the table only",
        (
            Edit(
                ROUTING,
                "    from penstock.indexed_messages m\n",
                "    from message_store.messages m\n",
            ),
        ),
        (
            f"{GROUPS}::test_a_group_that_starts_late_handles_archived_messages",
            f"{GROUPS}::test_a_reset_group_replays_archived_messages",
        ),
    ),
    Mutant(
        "archived-messages-of-a-partition",
        "If a partition skipped messages that are archived",
        (
            Edit(
                ROUTING,
                "  from penstock.indexed_messages m\n"
                "  join penstock.message_types t on t.id = message_in_partition.type_id\n",
                "  from message_store.messages m\n"
                "  join penstock.message_types t on t.id = message_in_partition.type_id\n",
            ),
        ),
        (
            f"{GROUPS}::test_messages_that_are_archived_while_they_wait_stay_in_their_partitions",
            f"{GROUPS}::test_a_released_claim_is_claimed_again_with_its_archived_messages",
        ),
    ),
    Mutant(
        "declaration-beside-a-move",
        "If a type were declared while messages of it are moved",
        (Edit(STUBS, "lock table message_store.messages in row exclusive mode;", "null;"),),
        (f"{DECLARING}::test_a_declaration_waits_for_a_move_that_is_open",),
    ),
    Mutant(
        "move-of-a-type-being-indexed",
        "If a move did not index messages whose type is being indexed",
        (Edit(STUBS, "and t.filled_to is not null", "and false"),),
        (f"{DECLARING}::test_a_message_that_is_archived_while_its_type_is_indexed_is_found[6]",),
    ),
    Mutant(
        "archived-messages-of-a-new-type",
        "If a declaration indexed the messages of the table only",
        (
            Edit(
                ATTRIBUTES,
                "      select 0 where exists (",
                "      select 0 where false and exists (",
            ),
        ),
        (
            f"{DECLARING}::test_archived_messages_are_indexed",
            f"{DECLARING}::test_until_then_conditions_are_refused",
            f"{DECLARING}::test_an_attribute_that_is_declared_later_is_added_to_the_stubs",
        ),
    ),
    Mutant(
        "archived-messages-of-another-declaration",
        "If archived messages were indexed for a declaration that another has replaced",
        (Edit(STUBS, "and t.declared_by = fill_archived.declared_by\n", "\n"),),
        (f"{DECLARING}::test_another_declaration_meanwhile_begins_again",),
    ),
)

REMOVALS = (
    Mutant(
        "guard-below-a-removal",
        "If a guard that was read where the watermark is held back did not cover removals below it",
        (
            Edit(
                BOUNDARIES,
                "where a.key_pair = penstock.removal_key() and a.type_id = 0\n",
                "where false\n",
            ),
        ),
        (f"{REMOVED}::test_a_read_below_an_open_writer_gives_a_guard_that_can_be_used",),
    ),
    Mutant(
        "removals-and-an-append-of-one",
        "If an append of one message did not look whether messages were removed",
        (
            Edit(
                APPEND_ONE, "any (array_prepend(penstock.removal_key(), watched))", "any (watched)"
            ),
        ),
        (
            f"{REMOVED_SINCE}[False]",
            f"{REMOVED}::test_a_removal_that_is_open_is_seen_when_it_commits",
        ),
    ),
    Mutant(
        "removals-and-an-append",
        "If an append of several messages did not look whether messages were removed",
        (
            Edit(
                BOUNDARIES,
                "where a.key_pair = penstock.removal_key() and a.type_id = any (type_ids)",
                "where false",
            ),
        ),
        (f"{REMOVED_SINCE}[True]",),
    ),
    Mutant(
        "removals-and-a-guard",
        "If a guard went on where messages that it has not seen were removed",
        (
            Edit(
                BOUNDARIES,
                "    raise exception using errcode = 'PS049',",
                "    return;\n    raise exception using errcode = 'PS049',",
            ),
        ),
        (f"{REMOVED_SINCE}[False]", f"{REMOVED_SINCE}[True]"),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*ARCHIVED, *REMOVALS)
