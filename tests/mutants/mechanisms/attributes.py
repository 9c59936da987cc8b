"""Promise 2, of the index: whoever writes is indexed and locked, and nothing declared is missed."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

ATTRIBUTES = "database/sql/penstock/30_attributes.sql"
BOUNDARIES = "database/sql/penstock/31_boundaries.sql"
APPEND = "database/sql/penstock/32_append.sql"
APPEND_ONE = "database/sql/penstock/32_append_one.sql"

APPLIED = "tests/log/test_applied_rows.py::TestASubscription"
DECLARING = "tests/log/test_declaring.py"
GUARDS = "tests/log/test_guards.py"
PAST_PENSTOCK = f"{GUARDS}::test_a_write_past_penstock_is_a_conflict"
NO_DECLARATION = f"{DECLARING}::test_an_append_that_waits_for_its_locks_does_not_miss_a_declaration"
LOCKS_MESSAGES = "lock table message_store.messages in row exclusive mode;"


def _off(trigger: str, event: str, kind: str) -> Edit:
    """A trigger that is there, and never fires."""
    head = f"create or replace trigger {trigger}\n    after {event} on message_store.messages\n"
    rows = "    referencing new table as inserted\n" if event == "insert" else ""
    rows = rows or "    referencing old table as removed\n"
    head += rows if kind == "statement" else ""
    return Edit(
        ATTRIBUTES, f"{head}    for each {kind} ", f"{head}    for each {kind} when (false) "
    )


PAST_US = (
    Mutant(
        "index-of-plain-writers",
        "If only our own functions indexed what they write",
        (_off("penstock_index_attributes", "insert", "statement"),),
        (
            f"{PAST_PENSTOCK}[penstock-insert]",
            f"{PAST_PENSTOCK}[beside-write_message]",
            "tests/groups/test_routing.py::test_messages_of_plain_writers_are_delivered_too",
        ),
    ),
    Mutant(
        "locks-of-plain-writers",
        "If only our own functions locked what they write",
        (
            Edit(
                BOUNDARIES,
                "  foreach key in array keys loop\n"
                "    done := pg_advisory_xact_lock_shared(key);\n",
                "  foreach key in array keys loop\n    null;\n",
            ),
        ),
        (
            f"{GUARDS}::test_a_write_past_penstock_waits_for_a_decision_in_flight[insert]",
            f"{PAST_PENSTOCK}[penstock-copy]",
        ),
    ),
    Mutant(
        "index-of-applied-rows",
        "If rows that come by logical replication were not indexed",
        (_off("penstock_index_applied", "insert", "row"),),
        (f"{APPLIED}::test_indexes_and_announces_what_it_applies",),
    ),
    Mutant(
        "locks-of-applied-rows",
        "If rows that come by logical replication did not wait for a decision",
        (
            Edit(
                ATTRIBUTES,
                "    perform penstock.share_boundaries(keys);\n",
                "    null;\n",
            ),
        ),
        (f"{APPLIED}::test_waits_for_a_decision_in_flight",),
    ),
    Mutant(
        "index-of-removed-messages",
        "If messages that are deleted stayed in the index",
        (_off("penstock_forget_attributes", "delete", "statement"),),
        (f"{DECLARING}::test_removed_messages_are_forgotten",),
    ),
    Mutant(
        "index-of-removed-rows",
        "If messages that logical replication deletes stayed in the index",
        (_off("penstock_forget_applied", "delete", "row"),),
        (f"{APPLIED}::test_takes_messages_out_of_the_index",),
    ),
    Mutant(
        "index-of-a-users-trigger",
        "If what a trigger of the user's inserts during an append were not indexed",
        (
            Edit(
                ATTRIBUTES,
                "returns trigger language plpgsql security definer set search_path = pg_catalog\n"
                "as $$\nbegin\n"
                "  if current_setting('penstock.appending', true) = pg_trigger_depth()::text then",
                "returns trigger language plpgsql security definer set search_path = pg_catalog\n"
                "as $$\nbegin\n"
                "  if current_setting('penstock.appending', true) <> '' then",
            ),
        ),
        (f"{DECLARING}::test_what_a_trigger_of_yours_inserts_during_an_append_is_indexed",),
    ),
    Mutant(
        "index-after-an-append-of-one",
        "If what a transaction inserts after an append of one message were not indexed",
        (
            Edit(
                APPEND_ONE,
                "    done := set_config('penstock.appending', coalesce(outer_append, ''), true);\n",
                "",
            ),
        ),
        (
            "tests/log/test_appending.py"
            "::test_what_a_plain_insert_writes_after_an_append_is_indexed[1]",
        ),
    ),
    Mutant(
        "index-after-an-append",
        "If what a transaction inserts after an append were not indexed",
        (
            Edit(
                APPEND,
                "  done := set_config('penstock.appending', coalesce(outer_append, ''), true);\n",
                "",
            ),
        ),
        (
            "tests/log/test_appending.py"
            "::test_what_a_plain_insert_writes_after_an_append_is_indexed[2]",
        ),
    ),
)

DECLARED = (
    Mutant(
        "declaration-beside-writers",
        "If a type were declared beside those who write",
        (
            Edit(
                ATTRIBUTES,
                "lock table message_store.messages in share row exclusive mode;",
                "null;",
            ),
        ),
        (f"{NO_DECLARATION}[1]", f"{NO_DECLARATION}[2]"),
    ),
    Mutant(
        "declaration-that-gives-up",
        "If a declaration that cannot keep writers out went on",
        (
            Edit(
                ATTRIBUTES,
                "  if not locked then\n    raise exception using errcode = 'PS048',",
                "  if false then\n    raise exception using errcode = 'PS048',",
            ),
        ),
        (
            "tests/groups/test_worker.py"
            "::test_a_handler_whose_outcome_cannot_be_declared_yet_is_not_at_fault",
        ),
    ),
    Mutant(
        "append-beside-a-declaration",
        "If a type were declared while an append waits for its locks",
        (Edit(APPEND, LOCKS_MESSAGES, "null;"),),
        (f"{NO_DECLARATION}[2]",),
    ),
    Mutant(
        "append-of-one-beside-a-declaration",
        "If a type were declared while an append of one message waits for its locks",
        (Edit(APPEND_ONE, LOCKS_MESSAGES, "null;"),),
        (f"{NO_DECLARATION}[1]",),
    ),
    Mutant(
        "older-snapshots",
        "If a declaration did not wait for transactions that do not see it",
        (
            Edit(
                ATTRIBUTES,
                "  select exists (\n    select from pg_catalog.pg_stat_activity s",
                "  select false and exists (\n    select from pg_catalog.pg_stat_activity s",
            ),
        ),
        (
            f"{DECLARING}"
            "::test_a_transaction_that_saw_the_log_before_the_declaration_is_waited_for",
            f"{DECLARING}::test_the_snapshot_of_another_role_is_waited_for_too",
        ),
    ),
    Mutant(
        "snapshots-of-other-roles",
        "If a declaration saw the snapshots of its own role only",
        (
            Edit(
                ATTRIBUTES,
                "returns boolean language sql volatile security definer"
                " set search_path = pg_catalog",
                "returns boolean language sql volatile set search_path = pg_catalog",
            ),
        ),
        (f"{DECLARING}::test_the_snapshot_of_another_role_is_waited_for_too",),
    ),
    Mutant(
        "two-who-fill",
        "If an attribute could be declared while another is filled in",
        (
            Edit(
                ATTRIBUTES,
                "where t.type = fill_attributes.type for update;",
                "where t.type = fill_attributes.type;",
            ),
        ),
        (
            f"{DECLARING}"
            "::test_an_attribute_that_is_declared_while_another_is_filled_in_is_filled_in_too",
        ),
    ),
    Mutant(
        "unfilled-type",
        "If a type could be decided on before its older messages are indexed",
        (
            Edit(
                BOUNDARIES,
                "    raise exception using errcode = 'PS041',",
                "    return;\n    raise exception using errcode = 'PS041',",
            ),
        ),
        (
            f"{DECLARING}"
            "::test_a_transaction_that_saw_the_log_before_the_declaration_is_waited_for",
            f"{DECLARING}::test_a_guard_of_your_own_is_refused_while_such_a_transaction_is_open[1]",
        ),
    ),
    Mutant(
        "unfilled-type-of-an-append",
        "If an append did not look whether its guard's types are indexed",
        (
            Edit(
                APPEND,
                "t.id is not null and t.filled_to is null and (",
                "t.id is not null and (",
            ),
        ),
        (f"{DECLARING}::test_a_guard_of_your_own_is_refused_while_such_a_transaction_is_open[2]",),
    ),
    Mutant(
        "unfilled-type-of-an-append-of-one",
        "If an append of one message did not look whether its guard's types are indexed",
        (Edit(APPEND_ONE, "like 'read %' and t.filled_to is null\n", "like 'read %'\n"),),
        (f"{DECLARING}::test_a_guard_of_your_own_is_refused_while_such_a_transaction_is_open[1]",),
    ),
    Mutant(
        "undeclared-type",
        "If a type that nobody declared could be decided on",
        (
            Edit(
                BOUNDARIES,
                "    raise exception using errcode = 'PS040',",
                "    return;\n    raise exception using errcode = 'PS040',",
            ),
        ),
        (
            f"{GUARDS}::test_a_condition_on_what_nobody_declared_is_refused",
            f"{GUARDS}::test_a_guard_on_the_whole_of_a_type_that_nobody_declared_is_refused[1]",
        ),
    ),
    Mutant(
        "undeclared-attribute",
        "If an attribute that nobody declared could be decided on",
        (
            Edit(
                BOUNDARIES,
                "    raise exception using errcode = 'PS042',",
                "    return;\n    raise exception using errcode = 'PS042',",
            ),
        ),
        (f"{GUARDS}::test_a_condition_on_what_nobody_declared_is_refused",),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*PAST_US, *DECLARED)
