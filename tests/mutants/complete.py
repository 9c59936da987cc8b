"""Promise 1: a reader misses nothing."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Excuse, Mutant

ANNOUNCE = "database/sql/penstock/02_announce.sql"
WATERMARK = "database/sql/penstock/03_watermark.sql"
CATEGORY_READ = "database/sql/penstock/06_category_read.sql"
IDENTITY = "database/sql/penstock/08_identity.sql"
RETENTION = "database/sql/penstock/22_retention.sql"
TRUNCATE = "database/sql/penstock/70_truncate.sql"

ANNOUNCEMENTS_TESTS = "tests/log/test_announcements.py"
APPLIED_TESTS = "tests/log/test_applied_rows.py"
COMPLETE_TESTS = "tests/log/test_complete.py"
FAULTS_TESTS = "tests/log/test_watermark_faults.py"
IDENTITY_TESTS = "tests/log/test_identity.py"
ITERATORS_TESTS = "tests/log/test_iterators.py"
RETENTION_TESTS = "tests/consumers/test_retention.py"
STOPPED_READER = "tests/log/test_interleavings.py::test_a_reader_stopped_at_a_gate_misses_nothing"
TRUNCATE_TESTS = "tests/log/test_truncate.py"
WATERMARK_TESTS = "tests/log/test_watermark.py"

THE_WATERMARK = (
    Mutant(
        "watermark",
        "Without the watermark",
        (
            Edit(
                WATERMARK,
                "return least(last_position, lowest_bound - 1);",
                "return last_position;",
            ),
        ),
        (
            f"{COMPLETE_TESTS}::test_readers_see_every_message_once_and_in_order",
            f"{COMPLETE_TESTS}::test_so_they_do_where_genuine_message_db_writes",
            f"{COMPLETE_TESTS}::test_one_late_commit_is_enough_to_be_missed_without_the_watermark",
            f"{COMPLETE_TESTS}::test_nor_do_they_miss_any_while_connections_are_killed",
            f"{STOPPED_READER}[1-busy before]",
            f"{WATERMARK_TESTS}::TestAnOpenWriter"
            "::test_holds_back_what_comes_after_it_until_it_ends",
            f"{WATERMARK_TESTS}::TestAnOpenWriter::test_holds_back_other_categories_too",
            f"{WATERMARK_TESTS}::TestTheHead::test_is_the_last_message_that_is_complete",
            f"{FAULTS_TESTS}::TestAPreparedTransaction::test_holds_the_watermark_through_a_crash",
            "tests/log/test_read.py::TestTheWholeLog"
            "::test_does_not_go_past_a_message_that_is_still_being_committed",
            f"{ITERATORS_TESTS}::TestReadCategory"
            "::test_ends_before_a_message_that_is_still_being_committed",
            f"{ITERATORS_TESTS}::TestFollowCategory::test_waits_for_a_message_that_commits_late",
            "tests/consumers/test_consumer.py::TestReading"
            "::test_a_message_of_an_open_transaction_is_waited_for",
            "tests/groups/test_routing.py"
            "::test_a_message_that_commits_late_is_delivered_in_its_place",
        ),
    ),
    Mutant(
        "sequence-read-second",
        "If the sequence were read after the announcements",
        (
            Edit(
                WATERMARK,
                """
  last_position := penstock.last_position();
  select min(a.bound) into lowest_bound from penstock.announcements(last_position) a;
""",
                """
  select min(a.bound) into lowest_bound
  from penstock.announcements(penstock.last_position()) a;
  last_position := penstock.last_position();
""",
            ),
        ),
        (f"{STOPPED_READER}[6-quiet before]", f"{STOPPED_READER}[7-quiet before]"),
    ),
    Mutant(
        "old-snapshot",
        "If a page were read in the snapshot of the statement that looks up the watermark",
        (
            Edit(
                CATEGORY_READ,
                "language plpgsql\nset enable_sort = off set plan_cache_mode",
                "language plpgsql stable\nset enable_sort = off set plan_cache_mode",
            ),
        ),
        (f"{STOPPED_READER}[1-busy before]", f"{STOPPED_READER}[5-busy before]"),
    ),
    Mutant(
        "snapshot-first",
        "If a transaction that keeps its snapshot took the watermark once it has begun",
        (
            Edit(
                "database/blocking.py",
                "self.watermark = self._pool.execute(connection, watermark_before())",
                "pass",
            ),
            Edit(
                "database/blocking.py",
                "        self._connection = connection\n\n    def _control",
                """\
        if self._terms.isolation.keeps_its_snapshot and self._pool.edition.has_watermark:
            self.watermark = self._pool.execute(connection, watermark_before())
        self._connection = connection

    def _control""",
            ),
        ),
        ("tests/log/test_interleavings.py::test_a_snapshot_taken_at_a_gate_misses_nothing[1]",),
    ),
    Mutant(
        "repeatable-read",
        "If an old snapshot were read without a watermark from before it",
        (
            Edit(
                CATEGORY_READ,
                """    raise exception using
      errcode = 'PS003',
      message = format(
        'a %s transaction reads an old snapshot and needs a watermark taken before it began',
        current_setting('transaction_isolation')),
      hint = 'Call penstock.watermark() before BEGIN and pass it in.';
""",
                "    return penstock.watermark();\n",
            ),
        ),
        (
            f"{WATERMARK_TESTS}::TestSnapshots::test_are_refused_without_a_watermark",
            "tests/test_transactions.py::TestIsolation"
            "::test_above_that_the_server_refuses_many_streams_without_a_watermark",
        ),
    ),
    Mutant(
        "standby",
        "If a standby answered with what it has",
        (
            Edit(
                WATERMARK,
                """  raise exception using
    errcode = 'PS005',
    message = 'a standby does not know which writers are open: read on the primary';
""",
                "  return penstock.last_position();\n",
            ),
        ),
        (f"{FAULTS_TESTS}::TestAStandby::test_refuses_to_read_many_streams",),
    ),
    Mutant(
        "standby-with-a-watermark",
        "If a standby were read up to a watermark of the primary, which may be ahead of it",
        (
            Edit(
                CATEGORY_READ,
                "  if pg_is_in_recovery() then  -- also with",
                "  if pg_is_in_recovery() and watermark is null then  -- also with",
            ),
        ),
        (f"{FAULTS_TESTS}::TestAStandby::test_refuses_to_read_many_streams",),
    ),
    Mutant(
        "head-of-nothing",
        "If the head were the watermark, which may be a position that is no message's",
        (
            Edit(
                CATEGORY_READ,
                """  if category = '$all' then
    return coalesce((
      select m.global_position from message_store.messages m
      where m.global_position <= until
      order by m.global_position desc limit 1), 0);
""",
                "  if category = '$all' then\n    return until;\n",
            ),
        ),
        (f"{WATERMARK_TESTS}::TestTheHead::test_is_never_a_position_that_was_rolled_back",),
    ),
    Mutant(
        "sequence-by-select",
        "If the sequence were read as a table is, which shows values that it has not handed out",
        (
            Edit(
                WATERMARK,
                """  last_position bigint :=
    pg_sequence_last_value('message_store.messages_global_position_seq'::regclass);
begin
  if last_position is null then
    select last_value - 1 into strict last_position
    from message_store.messages_global_position_seq;
    last_position := coalesce(
      pg_sequence_last_value('message_store.messages_global_position_seq'::regclass),
      last_position);
  end if;
  return last_position;
""",
                """  last_position bigint;
begin
  select case when is_called then last_value else last_value - 1 end into strict last_position
  from message_store.messages_global_position_seq;
  return last_position;
""",
            ),
        ),
        (
            f"{ANNOUNCEMENTS_TESTS}::TestTheSequence"
            "::test_is_never_seen_ahead_of_what_it_handed_out",
        ),
    ),
    Mutant(
        "head-after-the-page",
        "If a reader that passes over what is not its own looked for the head after the page",
        (
            Edit(
                "log/blocking.py",
                """            if len(page) < size:
                position = max(position, (head or 0) + 1)
""",
                """            if len(page) < size:
                head = self.category_head(category_name) if sparse else None
                position = max(position, (head or 0) + 1)
""",
            ),
            Edit(
                "log/awaiting.py",
                """            if len(page) < size:
                position = max(position, (head or 0) + 1)
""",
                """            if len(page) < size:
                head = await self.category_head(category_name) if sparse else None
                position = max(position, (head or 0) + 1)
""",
            ),
            Edit(
                "consumers/blocking.py",
                """            page = self._read_page(head)
        except LogChanged""",
                """            page = self._read_page(head)
            head = self._store.run(self._head()) if self._sparse else 0
        except LogChanged""",
            ),
        ),
        (
            f"{WATERMARK_TESTS}::TestAMessageWrittenBetweenTwoLooks"
            "::test_is_not_passed_over_by_a_follower",
            f"{WATERMARK_TESTS}::TestAMessageWrittenBetweenTwoLooks"
            "::test_is_not_passed_over_by_an_async_follower",
            f"{WATERMARK_TESTS}::TestAMessageWrittenBetweenTwoLooks"
            "::test_is_not_passed_over_by_a_member_of_a_group",
        ),
    ),
    Mutant(
        "watermark-that-goes-back",
        "If a follower's page ended at another watermark than the head that it goes on from",
        (
            Edit("log/blocking.py", "self.context.until(head),", "self.context,"),
            Edit("log/awaiting.py", "self.context.until(head),", "self.context,"),
            Edit(
                "consumers/progress.py",
                "self.context.until(head if self._sparse else None),",
                "self.context,",
            ),
        ),
        (
            f"{WATERMARK_TESTS}::TestAWatermarkThatGoesBack"
            "::test_does_not_make_a_follower_pass_over_anything",
            f"{WATERMARK_TESTS}::TestAWatermarkThatGoesBack"
            "::test_does_not_make_an_async_follower_pass_over_anything",
            f"{WATERMARK_TESTS}::TestAWatermarkThatGoesBack"
            "::test_does_not_make_a_member_of_a_group_pass_over_anything",
        ),
    ),
)

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
                "    if row and row[0] != 1:",
                "    if row and row[0] < 1:",
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
            "tests/database/test_install_on_message_db.py"
            "::test_message_dbs_own_installer_puts_its_functions_back",
        ),
    ),
)

RESTORED = (
    Mutant(
        "resumed-by-position",
        "If a reader went on by the position alone, whatever stands there now",
        (Edit(IDENTITY, "  return found_id = id\n    or", "  return true or"),),
        (
            f"{IDENTITY_TESTS}::test_who_resumes_on_a_restored_log_is_told",
            f"{IDENTITY_TESTS}::test_a_follower_notices_that_the_log_is_another",
            "tests/pipeline/faults/test_restored.py::TestOffsets"
            "::test_a_log_that_changes_under_a_query_is_noticed",
            "tests/pipeline/faults/test_restored.py::TestOffsets"
            "::test_a_batch_that_was_planned_before_is_not_read_from_another_log",
        ),
    ),
    Mutant(
        "resumed-all-the-same",
        "If a reader of a log that has changed were not refused",
        (
            Edit(
                IDENTITY,
                "  raise exception using errcode = 'PS009',\n    message = format('message",
                "  raise notice using errcode = 'PS009',\n    message = format('message",
            ),
            Edit(
                IDENTITY,
                "or this is another database.';\nend",
                "or this is another database.';\n  return position;\nend",
            ),
        ),
        (
            f"{IDENTITY_TESTS}::test_who_resumes_on_a_restored_log_is_told",
            f"{IDENTITY_TESTS}::test_a_follower_notices_that_the_log_is_another",
        ),
    ),
    Mutant(
        "follower-without-a-message",
        "If a follower's next page were not held against the last message of the one before",
        (
            Edit(
                "log/paging.py",
                "return page[-1] if context.edition.has_watermark else None",
                "return None",
            ),
        ),
        (f"{IDENTITY_TESTS}::test_a_follower_notices_that_the_log_is_another",),
    ),
    Mutant(
        "beyond-the-end",
        "If a log that ends before what was read of it were waited for",
        (
            Edit(
                WATERMARK,
                "raise exception using\n    errcode = 'PS009',",
                "raise notice using\n    errcode = 'PS009',",
            ),
        ),
        (
            f"{TRUNCATE_TESTS}::test_a_consumer_that_is_running_starts_again",
            f"{TRUNCATE_TESTS}::test_an_async_consumer_that_is_running_starts_again",
            f"{TRUNCATE_TESTS}::test_a_guard_of_the_old_log_is_refused",
        ),
    ),
    Mutant(
        "incarnation",
        "If a truncated log were the same incarnation as before",
        (
            Edit(
                IDENTITY,
                """create or replace trigger penstock_renew_incarnation
  after truncate on message_store.messages
  for each statement execute""",
                """create or replace trigger penstock_renew_incarnation
  after truncate on message_store.messages
  for each statement when (false) execute""",
            ),
        ),
        (
            f"{IDENTITY_TESTS}::test_a_truncated_log_is_another_incarnation",
            "tests/pipeline/faults/test_restored.py::TestOffsets"
            "::test_an_offset_where_no_message_is_goes_by_the_incarnation",
        ),
    ),
    Mutant(
        "removed-is-another-log",
        "If a message that retention removed were taken for a sign of another log",
        (
            Edit(
                IDENTITY,
                "\n          or penstock.was_removed(target, position)));",
                "));",
            ),
        ),
        (
            f"{IDENTITY_TESTS}::test_a_message_that_retention_removed_is_resumed_after",
            "tests/pipeline/faults/test_restored.py::TestOffsets"
            "::test_a_message_that_retention_removed_is_no_other_log",
        ),
    ),
    Mutant(
        "deleted-is-another-log",
        "If a message that was deleted by hand ended who has just read it",
        (
            Edit(
                IDENTITY,
                "deleted and position <= penstock.last_position()",
                "false",
            ),
        ),
        (f"{IDENTITY_TESTS}::test_a_follower_goes_on_when_what_it_read_is_deleted_by_hand",),
    ),
    Mutant(
        "deleted-beyond-the-end",
        "If a message beyond the end of the log were taken for one that was deleted by hand",
        (
            Edit(
                IDENTITY,
                "deleted and position <= penstock.last_position()",
                "deleted",
            ),
        ),
        (
            f"{TRUNCATE_TESTS}::test_a_follower_is_told",
            f"{TRUNCATE_TESTS}::test_an_async_follower_is_told",
        ),
    ),
    Mutant(
        "planned-batch",
        "If a batch that Spark had planned before were read from another log",
        (
            Edit(
                "pipeline/stream_reader.py",
                "        if checks and not self._begun and self._moved(end):",
                "        if False and checks and not self._begun and self._moved(end):",
            ),
        ),
        (
            "tests/pipeline/faults/test_restored.py::TestOffsets"
            "::test_a_batch_that_was_planned_before_is_not_read_from_another_log",
        ),
    ),
    Mutant(
        "restored-step",
        "If a step on other messages of a restored log had the hash of the first",
        (
            Edit(
                "pipeline/snapshot.py",
                '        if self.last_ids:\n            facts["last_ids"]',
                '        if False:\n            facts["last_ids"]',
            ),
        ),
        (
            "tests/pipeline/steps/test_restored_log.py"
            "::test_a_step_on_other_messages_has_another_hash",
        ),
    ),
    Mutant(
        "forget-log",
        "If a truncated log left behind what pointed into it",
        (
            Edit(
                TRUNCATE,
                """create or replace trigger penstock_forget_log
  after truncate on message_store.messages
  for each statement execute""",
                """create or replace trigger penstock_forget_log
  after truncate on message_store.messages
  for each statement when (false) execute""",
            ),
        ),
        (
            f"{TRUNCATE_TESTS}::test_a_group_handles_the_new_messages[restart]",
            f"{TRUNCATE_TESTS}::test_a_consumer_that_starts_handles_the_new_messages[restart-table]",
            f"{TRUNCATE_TESTS}::test_a_session_begins_at_the_first_record[restart]",
            f"{TRUNCATE_TESTS}::test_a_processor_begins_again[restart]",
            f"{TRUNCATE_TESTS}::test_a_delivery_can_be_made_again[restart]",
            f"{TRUNCATE_TESTS}::test_what_retention_removed_before_is_not_missed[restart]",
        ),
    ),
)

FORGOTTEN = (
    Mutant(
        "truncate-keeps-attributes",
        "If guards still saw the messages of a log that was truncated",
        (
            Edit(
                TRUNCATE,
                "    truncate penstock.message_attributes;\n",
                "    null;\n",
            ),
        ),
        (f"{TRUNCATE_TESTS}::test_appends_and_guards_begin_anew[restart]",),
    ),
    Mutant(
        "truncate-keeps-groups",
        "If groups went on where they were in a log that was truncated",
        (Edit(TRUNCATE, "  perform penstock.forget_group_positions();\n", ""),),
        (
            f"{TRUNCATE_TESTS}::test_a_group_handles_the_new_messages[restart]",
            f"{TRUNCATE_TESTS}::test_a_claim_in_flight_is_stale[restart]",
        ),
    ),
    Mutant(
        "truncate-keeps-positions",
        "If consumers kept positions in a log that was truncated",
        (Edit(TRUNCATE, "  delete from penstock.consumer_positions;\n", ""),),
        (
            f"{TRUNCATE_TESTS}::test_a_consumer_that_starts_handles_the_new_messages[restart-table]",
            f"{TRUNCATE_TESTS}"
            "::test_a_consumer_that_runs_on_cannot_save_a_position_of_the_old_log[table]",
        ),
    ),
    Mutant(
        "truncate-keeps-epochs",
        "If a session that is open went on in a log that was truncated",
        (Edit(TRUNCATE, "epoch = s.epoch + 1", "epoch = s.epoch"),),
        (f"{TRUNCATE_TESTS}::test_a_session_begins_at_the_first_record[restart]",),
    ),
    Mutant(
        "truncate-keeps-offsets",
        "If sessions kept offsets in a log that was truncated",
        (Edit(TRUNCATE, "  set next_offset = 0, epoch", "  set epoch"),),
        (f"{TRUNCATE_TESTS}::test_a_session_begins_at_the_first_record[restart]",),
    ),
    Mutant(
        "truncate-keeps-generations",
        "If a step in flight could commit into a log that was truncated",
        (Edit(TRUNCATE, "  set generation = p.generation + 1, floors", "  set floors"),),
        (f"{TRUNCATE_TESTS}::test_a_processor_begins_again[restart]",),
    ),
    Mutant(
        "truncate-keeps-deliveries",
        "If what was delivered to a log that was truncated could not be delivered again",
        (Edit(TRUNCATE, "  delete from penstock.deliveries;\n", ""),),
        (f"{TRUNCATE_TESTS}::test_a_delivery_can_be_made_again[restart]",),
    ),
    Mutant(
        "truncate-keeps-retentions",
        "If what retention removed from a log that was truncated still counted",
        (Edit(TRUNCATE, "  delete from penstock.retentions;\n", ""),),
        (f"{TRUNCATE_TESTS}::test_what_retention_removed_before_is_not_missed[restart]",),
    ),
)

WHAT_IS_KEPT = (
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
                "order by m.position desc limit 1)), 0) + 1",
                "order by m.position desc limit 1)), 9223372036854775806) + 1",
            ),
        ),
        (f"{RETENTION_TESTS}::TestProtection::test_one_whose_position_is_garbled_keeps_all",),
    ),
    Mutant(
        "retention-of-sessions",
        "If retention removed what sessions, and pipelines that read one stream, have not read",
        (
            Edit(
                RETENTION,
                "    where not ignore_consumers\n    union all",
                "    where false\n    union all",
            ),
            Edit(
                RETENTION,
                "    where not ignore_consumers\n      and not",
                "    where false\n      and not",
            ),
        ),
        (f"{RETENTION_TESTS}::TestProtection::test_what_a_session_has_not_read_stays",),
    ),
    Mutant(
        "retention-of-pipelines",
        "If retention removed what the processors of pipelines have not read",
        (Edit(RETENTION, "      where t.queue = slowest_consumer.category", "      where false"),),
        (
            "tests/pipeline/steps/test_waiting_messages.py"
            "::test_retention_spares_what_it_has_not_read",
            "tests/pipeline/steps/test_waiting_messages.py"
            "::test_before_its_first_step_it_lags_and_keeps_its_messages_too",
        ),
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
        (Edit(RETENTION, "  where o.followed;", "  where true;"),),
        (
            f"{RETENTION_TESTS}::TestStream::test_the_last_message_stays_so_that_positions_go_on",
            f"{RETENTION_TESTS}::TestCategory::test_the_last_message_of_each_stream_stays",
        ),
    ),
    Mutant(
        "retention-unrecorded",
        "If nothing were kept of what retention removed",
        (Edit(RETENTION, "  if run.count > 0 then", "  if false then"),),
        (
            f"{RETENTION_TESTS}::TestFallenBehind::test_a_consumer_learns_how_much_it_missed",
            f"{IDENTITY_TESTS}::test_a_message_that_retention_removed_is_resumed_after",
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *THE_WATERMARK,
    *ANNOUNCEMENTS,
    *POSITIONS,
    *RESTORED,
    *FORGOTTEN,
    *WHAT_IS_KEPT,
)

EXCUSES: tuple[Excuse, ...] = ()
