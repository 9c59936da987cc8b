"""The watermark: a reader stays below every writer that is still open."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

WATERMARK = "database/sql/penstock/03_watermark.sql"
CATEGORY_READ = "database/sql/penstock/06_category_read.sql"
ANNOUNCEMENTS_TESTS = "tests/log/test_announcements.py"
COMPLETE_TESTS = "tests/log/test_complete.py"
FAULTS_TESTS = "tests/log/test_watermark_faults.py"
ITERATORS_TESTS = "tests/log/test_iterators.py"
STOPPED_READER = "tests/log/test_interleavings.py::test_a_reader_stopped_at_a_gate_misses_nothing"
REPLICAS = "database/sql/penstock/09_replicas.sql"
REPLICA_TESTS = "tests/log/test_replica.py"
WATERMARK_TESTS = "tests/log/test_watermark.py"

MUTANTS: tuple[Mutant, ...] = (
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
            f"{COMPLETE_TESTS}::test_one_late_commit_is_enough_to_be_missed_without_the_watermark",
            f"{STOPPED_READER}[1-busy]",
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
        "gaps-after-a-position",
        "If a reader near the end of the log did not look for gaps",
        (
            Edit(
                WATERMARK,
                "and distance <= (",
                "and 0 <= (",
            ),
        ),
        (
            f"{WATERMARK_TESTS}::TestAfterAPosition"
            "::test_a_message_that_is_still_being_committed_is_a_gap",
            f"{COMPLETE_TESTS}::test_one_late_commit_is_enough_to_be_missed_without_the_watermark",
        ),
    ),
    Mutant(
        "last-announcement",
        "If a reader stayed below the last announcement instead of the lowest",
        (Edit(WATERMARK, "select min(a.bound) into", "select max(a.bound) into"),),
        (
            f"{WATERMARK_TESTS}::TestAnOpenWriter::test_holds_back_although_another_came_later",
            f"{COMPLETE_TESTS}::test_so_they_do_where_genuine_message_db_writes",
            f"{COMPLETE_TESTS}::test_nor_do_they_miss_any_while_connections_are_killed[penstock]",
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
        (f"{STOPPED_READER}[8-gap]", f"{STOPPED_READER}[9-gap]"),
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
        (f"{STOPPED_READER}[1-busy]", f"{STOPPED_READER}[5-busy]"),
    ),
    Mutant(
        "snapshot-first",
        "If a transaction that keeps its snapshot took the watermark once it has begun",
        (
            Edit(
                "transaction.py",
                "self.watermark = execute(connection, watermark_before(), where=self._pool.where)",
                "pass",
            ),
            Edit(
                "transaction.py",
                "        self._connection = connection\n\n    def _control",
                """\
        if self._terms.isolation.keeps_its_snapshot and self._pool.edition.has_watermark:
            self.watermark = execute(connection, watermark_before(), where=self._pool.where)
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
            "tests/database/test_transactions.py::TestIsolation"
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
    message = 'a standby has no record of open writers: read from the primary';
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
                "  elsif pg_is_in_recovery() then  -- also with",
                "  elsif pg_is_in_recovery() and watermark is null then  -- also with",
            ),
        ),
        (f"{FAULTS_TESTS}::TestAStandby::test_refuses_to_read_many_streams",),
    ),
    Mutant(
        "replica-not-checked",
        "If a promoted standby, or one of another log, were read as the replica",
        (
            Edit(
                REPLICAS,
                "  raise exception using errcode = 'PS011',",
                "  return;\n  raise exception using errcode = 'PS011',",
            ),
        ),
        (
            f"{REPLICA_TESTS}::test_a_promoted_standby_is_refused_from_the_next_read_on",
            f"{REPLICA_TESTS}::TestAWrongReplica"
            "::test_a_standby_of_another_log_is_noticed_by_its_messages",
        ),
    ),
    Mutant(
        "replica-old-snapshot",
        "If a replica were read in a snapshot older than its point",
        (
            Edit(
                REPLICAS,
                "  elsif not is_fresh and (observed >= lsn) is not true then\n"
                "    raise exception using errcode = 'PS003',",
                "  elsif false then\n    raise exception using errcode = 'PS003',",
            ),
        ),
        (
            f"{REPLICA_TESTS}::TestComplete::test_a_snapshot_that_is_older_than_the_point_is_refused",
        ),
    ),
    Mutant(
        "replica-not-replayed",
        "If a replica were read before it has replayed the log",
        (
            Edit(
                REPLICAS,
                "  elsif (replayed >= lsn) is not true then\n"
                "    raise exception using errcode = 'PS010',",
                "  elsif false then\n    raise exception using errcode = 'PS010',",
            ),
            Edit(
                REPLICAS,
                "  elsif last_id is not null and found_id is null then"
                "  -- removed or archived since then, or it is a fork\n"
                "    raise exception using errcode = 'PS010',",
                "  elsif false then\n    raise exception using errcode = 'PS010',",
            ),
        ),
        (
            f"{REPLICA_TESTS}::TestComplete"
            "::test_eight_writers_and_a_replay_that_is_delayed_at_random",
            f"{REPLICA_TESTS}::TestAWrongReplica::test_a_log_that_lacks_a_message_is_not_read",
        ),
    ),
    Mutant(
        "head-of-nothing",
        "If the head were the watermark, which may be a position that is no message's",
        (
            Edit(
                CATEGORY_READ,
                """  if category = '$all' then
    head := (
      select m.global_position from message_store.messages m
      where m.global_position <= until
      order by m.global_position desc limit 1);
""",
                "  if category = '$all' then\n    head := until;\n",
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
                "log/calls.py",
                """                if len(page) < size:
                    position = max(position, (head or 0) + 1)
""",
                """                if len(page) < size:
                    head = self.category_head(category_name) if sparse else None
                    position = max(position, (head or 0) + 1)
""",
            ),
            Edit(
                "log/calls_async.py",
                """                if len(page) < size:
                    position = max(position, (head or 0) + 1)
""",
                """                if len(page) < size:
                    head = await self.category_head(category_name) if sparse else None
                    position = max(position, (head or 0) + 1)
""",
            ),
            Edit(
                "consumers/consumer.py",
                """            page = self._read_page(until)
        except LogChanged""",
                """            page = self._read_page(until)
            if self._subscription.is_filtered:
                until = self._store.run(self._subscription.head())
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
            Edit("log/calls.py", "context = self.context.until(head)", "context = self.context"),
            Edit(
                "log/calls_async.py", "context = self.context.until(head)", "context = self.context"
            ),
            Edit("consumers/progress.py", "wanted.context.until(until),", "wanted.context,"),
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
