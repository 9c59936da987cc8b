"""Mutants of consumers, sessions and positions, by the area that lists them."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SESSIONS = "database/sql/penstock/20_sessions.sql"
POSITIONS = "database/sql/penstock/21_positions.sql"
CONSUMER = "consumers/consumer.py"
ASYNC_CONSUMER = "consumers/consumer_async.py"
SESSION_STATE = "queues/session_state.py"

PARKED = """\
            transaction.run(
                parked.park(self._store.context, self.parked_stream, message, error, attempts)
            )
"""

CONSUMING = "tests/consumers/test_consumer.py::"
FAULTS = "tests/consumers/test_consumer_faults.py::"
FAILING = "tests/consumers/test_failures.py::"
HANDLING = "tests/consumers/test_handlers.py::"
SAVED = "tests/consumers/test_positions.py::"
QUEUES = "tests/queues/test_queues.py::"
SESSION = "tests/queues/test_sessions.py::"
TROUBLE = "tests/queues/test_session_trouble.py::"
KILLED = "tests/queues/test_session_faults.py::TestKilled::"
FLATNESS = "tests/promises/test_flat.py::"

SET_ASIDE = f"{FAILING}TestPark::test_the_message_is_set_aside_and_the_rest_goes_on"
COMES_AGAIN = f"{TROUBLE}TestARollback::test_lets_the_record_come_again"
INTERRUPTED = f"{CONSUMING}test_interrupted_while_it_saves_it_says_so_and_goes_on"

CONSUMERS = (
    Mutant(
        "handled-then-stored",
        "If a consumer stored its position before it handled",
        (
            Edit(
                CONSUMER,
                """            self._calls.run(handler, message)
            self._progress.done(message.global_position)
""",
                """            self._progress.done(message.global_position)
            self._save()
            self._calls.run(handler, message)
""",
            ),
        ),
        (
            f"{FAILING}TestStop::test_it_stops_at_the_message_and_resumes_with_it",
            f"{FAULTS}test_crashed_between_handling_and_storing[blocking-False-stream]",
        ),
    ),
    Mutant(
        "passed-over",
        "If what a consumer cannot handle were passed over in silence",
        (
            Edit(CONSUMER, PARKED, "            pass\n"),
            Edit(
                ASYNC_CONSUMER,
                PARKED.replace("transaction", "await transaction"),
                "            pass\n",
            ),
        ),
        (
            f"{SET_ASIDE}[blocking-False-stream]",
            f"{SET_ASIDE}[async-False-stream]",
        ),
    ),
    Mutant(
        "stopped-attempts",
        "If a message whose handler failed while the consumer stops were done with",
        (
            Edit(
                CONSUMER,
                """        if self._stopping.is_set():
            return False
        if not self._policy.parks:""",
                """        if self._stopping.is_set():
            self._progress.done(message.global_position)
            return False
        if not self._policy.parks:""",
            ),
        ),
        (f"{FAILING}TestRetry::test_stop_does_not_wait_for_the_next_try",),
    ),
    Mutant(
        "unfinished-results",
        "If a handler that returns something to be run later were done",
        (
            Edit(
                "consumers/handlers.py",
                "    if inspect.isgenerator(result) or inspect.isasyncgen(result):",
                "    if False:",
            ),
            Edit(
                "loops/concurrency.py",
                "    if result is not None and inspect.isawaitable(result):",
                "    if False:",
            ),
        ),
        (
            f"{HANDLING}TestGenerators::test_one_in_disguise_is_not_taken_for_done",
            f"{HANDLING}TestAsyncInABlockingConsumer::test_one_in_disguise_is_not_taken_for_done",
        ),
    ),
    Mutant(
        "head-before-page",
        "If a consumer with a filter looked for the end of the log after it has read a page",
        (
            Edit(
                CONSUMER,
                """        self._progress.fetched(page)
""",
                """        self._progress.fetched(page)
        if self._subscription.is_filtered:
            until = self._store.run(self._subscription.head())
""",
            ),
        ),
        (
            f"{CONSUMING}TestReading::test_what_is_written_after_the_page_was_read_is_not_passed_over",
        ),
    ),
)

FENCING = (
    Mutant(
        "manual-commit",
        "If a session committed when it polls",
        (
            Edit(
                SESSION_STATE,
                "(*self.id, *self.id, self._stored, self._position, self._auto)",
                "(*self.id, *self.id, self._stored, self._position, True)",
            ),
        ),
        (
            f"{SESSION}TestManualCommit::test_what_was_not_committed_comes_again_after_a_restart",
            f"{KILLED}test_between_poll_and_commit",
        ),
    ),
    Mutant(
        "fencing",
        "If an old session could still poll, commit and seek",
        (
            Edit(
                SESSIONS,
                """  raise exception using
    errcode = 'PS020',""",
                """  return;
  raise exception using
    errcode = 'PS020',""",
            ),
            Edit(
                SESSIONS,
                "if found_row.epoch = committed_offset.epoch then",
                "if found_row.epoch is not null then",
            ),
        ),
        (
            f"{TROUBLE}TestFencing::test_a_second_session_with_the_same_id_fences_the_first",
            f"{TROUBLE}TestFencing"
            "::test_a_record_polled_before_the_fence_cannot_be_committed_after_it",
            f"{TROUBLE}TestFencing"
            "::test_a_fenced_session_does_not_move_the_offset_by_an_auto_poll_or_seek",
        ),
    ),
    Mutant(
        "lower-offset",
        "If a commit that comes late took the offset back",
        (
            Edit(
                SESSIONS,
                "else greatest(old.next_offset, store_offset.next_offset) end;",
                "else store_offset.next_offset end;",
            ),
        ),
        (f"{SESSION}TestManualCommit::test_a_lower_offset_is_ignored",),
    ),
    Mutant(
        "fenced-store",
        "If a session were not compared with the newest one when its offset is stored",
        (
            Edit(
                SESSIONS,
                "if old.epoch is distinct from store_offset.epoch then",
                "if false then",
            ),
        ),
        (
            f"{TROUBLE}TestFencing"
            "::test_a_poll_that_meets_an_opening_session_waits_for_it_and_is_fenced",
        ),
    ),
    Mutant(
        "session-lock",
        "If an offset were stored without the lock of its row",
        (
            Edit(
                SESSIONS,
                """      and s.version = latest.version
    for update;""",
                """      and s.version = latest.version;""",
            ),
        ),
        (
            f"{TROUBLE}TestFencing"
            "::test_a_poll_that_meets_an_opening_session_waits_for_it_and_is_fenced",
        ),
    ),
    Mutant(
        "first-sessions",
        "If two first sessions that are opened at once had the same number",
        (
            Edit(
                SESSIONS,
                "next_offset, epoch);\n  end loop;",
                "next_offset, epoch)\n      is not null;\n  end loop;",
            ),
        ),
        (f"{TROUBLE}TestFencing::test_of_two_first_sessions_that_open_at_once_one_is_fenced",),
    ),
    Mutant(
        "beyond-the-tail",
        "If an offset beyond the tail could be stored",
        (
            Edit(
                SESSIONS,
                """  if refuse_beyond_tail.next_offset > tail then
    raise exception using
      errcode = 'PS021',""",
                """  if false then
    raise exception using
      errcode = 'PS021',""",
            ),
        ),
        (
            f"{SESSION}TestManualCommit::test_an_offset_beyond_the_tail_is_refused",
            f"{QUEUES}TestPrimitives::test_commit_offset_stays_within_the_queue",
            f"{TROUBLE}TestRetention::test_an_emptied_stream_does_not_look_like_no_data",
        ),
    ),
    Mutant(
        "undecodable-records",
        "If a session passed over a record that it cannot read",
        (
            Edit(
                SESSION_STATE,
                """            self._undecodable = record.offset
            raise record""",
                """            self._pass_record(record.offset, moves=True)
            raise record""",
            ),
        ),
        (f"{TROUBLE}TestUndecodableRecords::test_comes_again_until_it_is_skipped",),
    ),
    Mutant(
        "rolled-back-offset",
        "If a session went on after a rollback as if its offset were stored",
        (
            Edit(
                SESSION_STATE,
                '" case when s.stored < %s then s.stored else %s end, %s) m on true",',
                '" case when false and s.stored < %s then s.stored else %s end, %s) m on true",',
            ),
            Edit(
                SESSION_STATE,
                "        if stored < self._stored:\n",
                "        if False:\n",
            ),
        ),
        (
            f"{COMES_AGAIN}[blocking-CommitMode.AUTO_COMMIT]",
            f"{COMES_AGAIN}[async-CommitMode.AUTO_COMMIT]",
        ),
    ),
    Mutant(
        "rolled-back-commit",
        "If a session could commit what it polled before a rollback",
        (
            Edit(
                SESSION_STATE,
                '"select case when s.stored < %s then s.stored"',
                '"select case when false and s.stored < %s then s.stored"',
            ),
        ),
        (f"{TROUBLE}TestARollback::test_leaves_nothing_of_what_was_polled_since_to_commit",),
    ),
)

AT_LEAST_ONCE: tuple[Mutant, ...] = (*CONSUMERS, *FENCING)

EXACTLY_ONCE: tuple[Mutant, ...] = (
    Mutant(
        "consumer-transaction",
        "If a consumer stored its position apart from what its handler wrote",
        (
            Edit(
                CONSUMER,
                "                saved = self._run_save(transaction,",
                "            saved = self._run_save(self._store,",
            ),
            Edit(
                ASYNC_CONSUMER,
                "                saved = await self._run_save(transaction,",
                "            saved = await self._run_save(self._store,",
            ),
        ),
        (
            f"{SAVED}TestSaving::test_transactional_twins_do_a_message_once",
            "tests/promises/test_exactly_once_in_async_code.py::test_async_twins_do_a_message_once",
        ),
    ),
    Mutant(
        "parked-apart",
        "If a message were parked apart from the position after it",
        (
            Edit(
                CONSUMER,
                PARKED,
                PARKED.replace("transaction", "self._store"),
            ),
        ),
        (f"{FAILING}TestPark::test_twins_park_a_message_once",),
    ),
    Mutant(
        "table-position",
        "If a position in the table were stored whatever it was before",
        (
            Edit(
                POSITIONS,
                "exit when old.position is distinct from previous",
                "exit when false",
            ),
        ),
        (
            f"{SAVED}TestSaving::test_transactional_twins_do_a_message_once[blocking-table]",
            f"{SAVED}TestSaving::test_a_second_process_under_the_same_id_is_noticed[blocking-table]",
            f"{SAVED}TestSaving::test_moved_while_it_runs_it_stops[blocking-table]",
        ),
    ),
    Mutant(
        "refused-position",
        "If a position that is not stored were not an error",
        (
            Edit(
                POSITIONS,
                """  raise exception using
    errcode = 'PS030',""",
                """  return save_position.position;
  raise exception using
    errcode = 'PS030',""",
            ),
        ),
        (
            f"{SAVED}TestSaving::test_transactional_twins_do_a_message_once[blocking-table]",
            f"{SAVED}TestSaving::test_moved_while_it_runs_it_stops[blocking-table]",
        ),
    ),
    Mutant(
        "stream-position",
        "If a position in a stream were stored whatever it was before",
        (
            Edit(
                "consumers/positions.py",
                "self.record(context, position, expected_version=stored.seen)",
                "self.record(context, position)",
            ),
        ),
        (
            f"{SAVED}TestSaving::test_transactional_twins_do_a_message_once[blocking-stream]",
            f"{SAVED}TestSaving::test_a_second_process_under_the_same_id_is_noticed[blocking-stream]",
            f"{SAVED}TestSaving::test_moved_while_it_runs_it_stops[blocking-stream]",
        ),
    ),
    Mutant(
        "position-lock",
        "If a position were stored without the lock of its row",
        (Edit(POSITIONS, "p.version = latest.version for update;", "p.version = latest.version;"),),
        (f"{SAVED}TestAtOnce::test_a_save_that_waits_for_others_sees_what_they_stored",),
    ),
    Mutant(
        "first-positions",
        "If two first positions that are stored at once were both stored",
        (
            Edit(
                POSITIONS,
                "  on conflict (consumer_id, version) do nothing;\n  return found;",
                "  on conflict (consumer_id, version) do nothing;\n  return true;",
            ),
        ),
        (f"{SAVED}TestAtOnce::test_of_two_first_saves_one_is_refused",),
    ),
    Mutant(
        "repeated-save",
        "If a save that is repeated were a conflict",
        (Edit(POSITIONS, " and old.save_id is distinct from save_id\n", "\n"),),
        (f"{SAVED}TestSaving::test_a_save_that_is_sent_twice_counts_once[blocking-table]",),
    ),
    Mutant(
        "durable-positions",
        "If what a handler writes were committed without waiting for the disk",
        (
            Edit(
                CONSUMER,
                "message.global_position, durable=True)",
                "message.global_position, durable=False)",
            ),
            Edit(
                ASYNC_CONSUMER,
                "message.global_position, durable=True)",
                "message.global_position, durable=False)",
            ),
        ),
        (
            f"{SAVED}TestDurability::test_of_what_a_handler_writes_with_it[blocking-True]",
            f"{SAVED}TestDurability::test_of_what_a_handler_writes_with_it[async-True]",
        ),
    ),
    Mutant(
        "interrupted-save",
        "If a consumer that is broken off while it saves took the save for lost",
        (
            Edit(
                "consumers/progress.py",
                """        except BaseException:  # Ctrl-C, or a task that was cancelled
            self.stored = None
""",
                """        except BaseException:  # Ctrl-C, or a task that was cancelled
""",
            ),
        ),
        (
            f"{INTERRUPTED}[blocking-StreamPositions]",
            f"{INTERRUPTED}[async-StreamPositions]",
        ),
    ),
)

FLAT: tuple[Mutant, ...] = (
    Mutant(
        "session-versions",
        "If the row of a session were updated in place",
        (
            Edit(
                SESSIONS,
                "replace_session.consumer_id, coalesce(old.version + 1, 0),",
                "replace_session.consumer_id, coalesce(old.version, 0),",
            ),
        ),
        (
            f"{FLATNESS}test_a_save_reads_as_much_after_many_others_under_an_old_snapshot[commit_offset]",
        ),
    ),
    Mutant(
        "position-versions",
        "If the row of a position were updated in place",
        (
            Edit(
                POSITIONS,
                "replace_position.consumer_id, coalesce(old.version + 1, 0),",
                "replace_position.consumer_id, coalesce(old.version, 0),",
            ),
        ),
        (
            f"{FLATNESS}test_a_save_reads_as_much_after_many_others_under_an_old_snapshot[save_position]",
        ),
    ),
    Mutant(
        "queue-tail",
        "If a session counted the records of its queue",
        (Edit(SESSIONS, "select max(m.position) + 1 from", "select count(*) from"),),
        ("tests/queues/test_session_faults.py::TestCost::test_does_not_grow_with_the_queue",),
    ),
)
