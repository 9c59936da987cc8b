"""Promise 1, the writers' side: announcements, and positions that were not announced."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

ANNOUNCE = "database/sql/penstock/02_announce.sql"
WATERMARK = "database/sql/penstock/03_watermark.sql"
TRUNCATE = "database/sql/penstock/70_truncate.sql"
ANNOUNCEMENTS_TESTS = "tests/log/test_announcements.py"
APPLIED_TESTS = "tests/log/test_applied_rows.py"
FAULTS_TESTS = "tests/log/test_watermark_faults.py"
TRUNCATE_TESTS = "tests/log/test_truncate.py"
WATERMARK_TESTS = "tests/log/test_watermark.py"

ANNOUNCEMENTS = (
    Mutant(
        "announcement",
        "If a writer did not announce where it may write",
        (
            Edit(
                ANNOUNCE,
                "done := pg_advisory_xact_lock_shared(1885693285, (bound & 2147483647)::int);",
                "done := '';",
            ),
        ),
        (
            f"{ANNOUNCEMENTS_TESTS}::TestTheSettings"
            "::test_that_is_reset_leaves_the_announcement_standing",
            f"{WATERMARK_TESTS}::TestAnOpenWriter::test_is_held_back_by_others",
            f"{WATERMARK_TESTS}::TestSavepoints"
            "::test_a_rollback_to_a_later_savepoint_does_not_let_go",
        ),
    ),
    Mutant(
        "announcement-for-ever",
        "If an announcement outlived its transaction, or what a savepoint undid",
        (
            Edit(
                ANNOUNCE,
                "done := pg_advisory_xact_lock_shared(1885693285, (bound & 2147483647)::int);",
                "done := pg_advisory_lock_shared(1885693285, (bound & 2147483647)::int);",
            ),
        ),
        (
            f"{WATERMARK_TESTS}::TestAnOpenWriter"
            "::test_holds_back_what_comes_after_it_until_it_ends",
            f"{WATERMARK_TESTS}::TestSavepoints::test_a_rollback_to_a_savepoint_lets_go",
            f"{WATERMARK_TESTS}::TestSavepoints::test_a_block_that_catches_its_exception_lets_go",
        ),
    ),
    Mutant(
        "announced-by-functions",
        "If only our own functions announced, and not whoever writes to the table",
        (
            Edit(
                ANNOUNCE,
                """create or replace trigger penstock_announce
  before insert on message_store.messages
  for each statement execute""",
                """create or replace trigger penstock_announce
  before insert on message_store.messages
  for each statement when (current_query() !~* '(insert into|copy|merge into) ') execute""",
            ),
        ),
        (
            f"{ANNOUNCEMENTS_TESTS}::TestEveryClient::test_that_inserts_is_announced",
            f"{ANNOUNCEMENTS_TESTS}::TestEveryClient::test_that_copies_is_announced",
            f"{ANNOUNCEMENTS_TESTS}::TestEveryClient::test_that_knows_nothing_of_us_is_announced",
        ),
    ),
    Mutant(
        "announced-afterwards",
        "If a writer announced itself only once it has its positions",
        (
            Edit(
                ANNOUNCE,
                "trigger penstock_announce\n  before insert",
                "trigger penstock_announce\n  after insert",
            ),
        ),
        (
            f"{ANNOUNCEMENTS_TESTS}::TestEveryClient"
            "::test_is_announced_before_it_takes_its_first_position",
        ),
    ),
    Mutant(
        "announced-by-session",
        "If the announcement were remembered by session instead of by transaction",
        (
            Edit(
                ANNOUNCE,
                "if current_setting('penstock.announced', true) is distinct from "
                "pg_current_xact_id()::text then",
                "if coalesce(current_setting('penstock.announced', true), '') = '' then",
            ),
        ),
        (
            f"{ANNOUNCEMENTS_TESTS}::TestTheSettings::test_left_behind_in_a_session_does_no_harm",
            f"{ANNOUNCEMENTS_TESTS}::TestTheSettings::test_of_an_earlier_transaction_does_no_harm",
        ),
    ),
    Mutant(
        "announced-by-cursor",
        "If the announcement belonged to the query in which it was made",
        (
            Edit(
                ANNOUNCE,
                """    begin
      done := pg_advisory_xact_lock_shared(1885693285, (bound & 2147483647)::int);
      done := set_config('penstock.bound', bound::text, true)
        || set_config('penstock.announced', pg_current_xact_id()::text, true);
    exception
      when no_data_found then raise;
    end;
""",
                """    done := pg_advisory_xact_lock_shared(1885693285, (bound & 2147483647)::int);
    done := set_config('penstock.bound', bound::text, true)
      || set_config('penstock.announced', pg_current_xact_id()::text, true);
""",
            ),
        ),
        (
            f"{WATERMARK_TESTS}::TestSavepoints"
            "::test_a_cursor_that_fails_in_one_keeps_holding_for_what_it_wrote_before",
        ),
    ),
    Mutant(
        "announcement-after-truncate",
        "If a transaction that truncates kept the announcement from before",
        (Edit(TRUNCATE, "  perform set_config('penstock.announced', '', true);\n", ""),),
        (f"{TRUNCATE_TESTS}::test_the_transaction_that_truncates_may_write_before_and_after",),
    ),
    Mutant(
        "prepared",
        "If announcements counted only while a backend holds them",
        (
            Edit(
                WATERMARK,
                "and l.pid is distinct from pg_backend_pid()",
                "and l.pid <> pg_backend_pid()",
            ),
        ),
        (
            f"{FAULTS_TESTS}::TestAPreparedTransaction::test_holds_the_watermark_until_it_ends",
            f"{FAULTS_TESTS}::TestAPreparedTransaction::test_holds_the_watermark_through_a_crash",
        ),
    ),
    Mutant(
        "own-announcement",
        "If a writer were held back by its own announcement",
        (Edit(WATERMARK, "    and l.pid is distinct from pg_backend_pid()\n", ""),),
        (
            f"{WATERMARK_TESTS}::TestAnOpenWriter"
            "::test_sees_its_own_messages_and_is_not_in_its_own_way",
        ),
    ),
    Mutant(
        "another-database",
        "If announcements of other databases counted",
        (
            Edit(
                WATERMARK,
                "    and l.database = (select d.oid from pg_catalog.pg_database d "
                "where d.datname = current_database())\n",
                "",
            ),
        ),
        (f"{WATERMARK_TESTS}::TestAnOpenWriter::test_of_another_database_holds_back_nothing",),
    ),
    Mutant(
        "key-of-31-bits",
        "If the key of an announcement were taken for the position itself",
        (
            Edit(
                WATERMARK,
                "select near + ((l.objid::bigint - near + 1073741824) & 2147483647) - 1073741824, "
                "l.pid",
                "select l.objid::bigint, l.pid",
            ),
        ),
        (f"{ANNOUNCEMENTS_TESTS}::TestTheKey::test_may_wrap_around",),
    ),
)

POSITIONS = (
    Mutant(
        "positions-below",
        "If positions below the announced one were let in",
        (
            Edit(
                ANNOUNCE,
                """create or replace trigger penstock_refuse_unannounced_position
  after insert on message_store.messages
  for each row
  when (new.global_position < nullif(current_setting('penstock.bound', true), '')::bigint)""",
                """create or replace trigger penstock_refuse_unannounced_position
  after insert on message_store.messages
  for each row
  when (false)""",
            ),
        ),
        (
            f"{ANNOUNCEMENTS_TESTS}::TestAPosition"
            "::test_made_by_hand_below_the_announced_one_is_refused",
            f"{ANNOUNCEMENTS_TESTS}::TestAPosition::test_drawn_before_the_announcement_is_refused",
            f"{ANNOUNCEMENTS_TESTS}::TestAPosition::test_from_a_cache_of_the_sequence_is_refused",
        ),
    ),
    Mutant(
        "applied-positions-below",
        "If logical replication applied positions that readers have passed",
        (
            Edit(
                ANNOUNCE,
                "  if new.global_position < current_setting('penstock.bound')::bigint then",
                "  if false then",
            ),
        ),
        (f"{APPLIED_TESTS}::TestASubscription::test_stops_at_a_position_that_readers_have_passed",),
    ),
    Mutant(
        "refuse-position",
        "If a position below the announced one were only remarked on",
        (
            Edit(
                ANNOUNCE,
                "raise exception using\n    errcode = 'PS006',",
                "raise notice using\n    errcode = 'PS006',",
            ),
        ),
        (
            f"{ANNOUNCEMENTS_TESTS}::TestAPosition"
            "::test_made_by_hand_below_the_announced_one_is_refused",
            f"{APPLIED_TESTS}::TestASessionInTheRoleOfAReplica"
            "::test_cannot_write_below_what_readers_may_have_read",
            f"{APPLIED_TESTS}::TestASubscription"
            "::test_stops_at_a_position_that_readers_have_passed",
        ),
    ),
    Mutant(
        "applied-sequence",
        "If the sequence stayed behind positions that come by logical replication",
        (
            Edit(
                ANNOUNCE,
                """create or replace trigger penstock_place_applied
  after insert on message_store.messages
  for each row execute""",
                """create or replace trigger penstock_place_applied
  after insert on message_store.messages
  for each row when (false) execute""",
            ),
        ),
        (f"{APPLIED_TESTS}::TestASubscription::test_indexes_and_announces_what_it_applies",),
    ),
    Mutant(
        "applied-unannounced",
        "If logical replication applied rows without an announcement",
        (
            Edit(
                ANNOUNCE,
                """create or replace trigger penstock_announce_applied
  after insert on message_store.messages
  for each row execute""",
                """create or replace trigger penstock_announce_applied
  after insert on message_store.messages
  for each row when (false) execute""",
            ),
            Edit(
                ANNOUNCE,
                "< current_setting('penstock.bound')::bigint then",
                "< current_setting('penstock.bound', true)::bigint then",
            ),
        ),
        (f"{APPLIED_TESTS}::TestASubscription::test_holds_back_what_comes_after_it_until_it_ends",),
    ),
    Mutant(
        "sequence-cache",
        "If a cache of the sequence were not refused",
        (
            Edit(
                "database/install.py",
                "    if cache not in (None, 1):",
                "    if cache and cache < 1:",
            ),
        ),
        ("tests/database/test_install_refused.py::test_a_sequence_with_a_cache_is_refused",),
    ),
    Mutant(
        "lost-triggers",
        "If nobody noticed that the triggers on the log were dropped or switched off",
        (
            Edit(
                "database/edition.py",
                "    if found.lacks_parts or (found.has_our_functions",
                "    if (found.has_our_functions",
            ),
        ),
        (
            "tests/database/test_install.py"
            "::test_a_trigger_without_which_readers_miss_messages_is_put_back",
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (*ANNOUNCEMENTS, *POSITIONS)
