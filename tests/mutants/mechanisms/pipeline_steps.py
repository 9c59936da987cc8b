"""A step of a pipeline is committed once, and all of it in one moment."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SQL = "database/sql/penstock/52_pipelines.sql"
STEP = "pipeline/step.py"
ATTEMPT = "pipeline/attempt.py"
LOCK = "pipeline/connection.py"
COMMIT = "tests/pipeline/steps/test_commit.py"
WHO = f"{COMMIT}::TestWhoMayCommit"
MOMENT = f"{COMMIT}::TestOneMoment"
RACES = "tests/pipeline/steps/test_races.py"
ALGORITHM = "tests/pipeline/steps/test_algorithm.py"
UPSERT = "tests/pipeline/steps/test_upsert.py::TestUpsert"
RUN_LOCK = "tests/pipeline/test_run_lock.py"

_LAST = "  if last.type is distinct from 'Snapshot' or last.hash is distinct from hash then"
_NAMES = "    connection, pipeline = context.connection, context.pipeline.name\n"
_LAKE = """\
        if result.lake is not None:
            result.lake.commit()  # first: nothing that readers of the log wait for is written yet
"""
_BEGIN = _NAMES + "    with connection.transaction():\n" + _LAKE + "        beside ="
_END = "    return published\n"
_UPSERT = """\
        for upsert in result.delivery.upserts if result.delivery else ():
            upsert.apply(connection.raw)
"""
_PROJECT = """\
            result.projection.apply(connection.raw, result.rows)
"""
_APART = "    with connection.transaction():\n"
_PROJECT_APART = """\
    if result.projection is not None and result.rows is not None:
        with connection.transaction():
            result.projection.apply(connection.raw, result.rows)
"""

_ONCE = (
    Mutant(
        "step-refused",
        "If a step were committed whatever has happened since it was begun",
        (Edit(SQL, "  raise exception using errcode = 'PS071',",
              "  raise notice using errcode = 'PS071',"),),
        (
            f"{WHO}::test_of_two_at_once_the_second_waits_and_gives_up",
            f"{RACES}::test_one_commits_and_the_other_is_superseded",
            f"{RACES}::test_who_starts_from_scratch_meanwhile_makes_the_step_give_up",
        ),
    ),
    Mutant(
        "step-snapshot-is-last",
        "If a step were committed though its Snapshot is not the last record any more",
        (Edit(SQL, _LAST, "  if false then"),),
        (
            f"{WHO}::test_what_was_committed_is_not_committed_again",
            f"{RACES}::test_who_begins_another_step_meanwhile_makes_the_first_give_up",
        ),
    ),
    Mutant(
        "step-attempt",
        "If a step left no Attempt behind its Snapshot",
        (Edit(SQL, "  perform message_store.write_message(\n",
              "  perform jsonb_build_array(\n"),),
        (
            f"{WHO}::test_what_was_committed_is_not_committed_again",
            f"{MOMENT}::test_killed_after_the_commit_it_leaves_all",
        ),
    ),
    Mutant(
        "step-tailers-stand",
        "If a step were committed though its tailer stands elsewhere",
        (Edit(SQL, 'if moved.position <> moved."from" then', "if false then"),),
        (f"{WHO}::test_nobody_where_a_tailer_was_moved_meanwhile",),
    ),
    Mutant(
        "step-generation",
        "If a step of before a start from scratch were committed",
        (Edit(SQL, "elsif state.generation is distinct from (snapshot ->> 'generation')::int then",
              "elsif false then"),),
        (f"{WHO}::test_nobody_who_began_before_a_start_from_scratch",),
    ),
    Mutant(
        "step-lock",
        "Without the lock of a processor's row",
        (Edit(SQL, "p.processor = commit_step.processor\n  for update;",
              "p.processor = commit_step.processor;"),),
        (f"{WHO}::test_of_two_at_once_the_second_waits_and_gives_up",),
    ),
    Mutant(
        "tailers-lock",
        "If tailers were placed without the lock of the processor's row",
        (Edit(SQL, "p.processor = place_tailers.processor\n  for update;",
              "p.processor = place_tailers.processor;"),),
        (f"{COMMIT}::TestTailers::test_two_runs_place_them_at_once",),
    ),
    Mutant(
        "tailers-forward",
        "If a tailer that stands somewhere were placed anew",
        (Edit(SQL, "new.tailers := place_tailers.tailers || old.tailers;",
              "new.tailers := old.tailers || place_tailers.tailers;"),),
        (f"{COMMIT}::TestTailers::test_one_that_stands_somewhere_is_not_put_back",),
    ),
)  # fmt: skip

_MOMENT = (
    Mutant(
        "step-cursor",
        "If the cursor of a source did not move with its messages",
        (Edit(SQL, "  if report ? 'cursor' then", "  if false then"),),
        (f"{MOMENT}::test_the_cursor_of_a_source_moves_with_it",),
    ),
    Mutant(
        "step-messages-apart",
        "If the messages of a step were published before its transaction",
        (Edit(STEP, _BEGIN, _NAMES + """\
    connection.run(state.publish_staged(result.staged, whole_categories=False))
    result.staged = []
""" + _BEGIN),),
        (
            f"{MOMENT}::test_until_it_is_committed_nothing_is_there",
            f"{COMMIT}::TestErrors::test_they_are_published_with_the_step",
            f"{ALGORITHM}::TestStep"
            "::test_7_attempt_messages_and_tailer_become_visible_in_one_moment",
        ),
    ),
    Mutant(
        "step-tailers-apart",
        "If the tailers of a step were moved after its transaction",
        (
            Edit(SQL, 'new.tailers := new.tailers || jsonb_build_object(moved.queue, moved."to");',
                 "null;"),
            Edit(STEP, _END, """\
    ends = {queue: end for queue, (_, end) in snapshot.ranges.items()}
    connection.raw.execute(
        "update penstock.processor_progress set tailers = tailers || %s where processor = %s",
        (psycopg.types.json.Jsonb(ends), snapshot.processor),
    )
""" + _END),
        ),
        (f"{MOMENT}::test_killed_after_the_commit_it_leaves_all",),
    ),
    Mutant(
        "upsert-before",
        "If rows were upserted before the transaction of their step",
        (
            Edit(STEP, _UPSERT, ""),
            Edit(STEP, _BEGIN, _NAMES + _APART + _UPSERT + _BEGIN),
        ),
        (
            f"{MOMENT}::test_killed_before_the_commit_it_leaves_nothing",
            f"{UPSERT}::test_rows_are_there_exactly_once_whatever_was_run_again",
            f"{UPSERT}::test_a_step_that_fails_when_it_commits_leaves_nothing",
        ),
    ),
    Mutant(
        "upsert-after",
        "If rows were upserted after the transaction of their step",
        (Edit(STEP, _UPSERT, ""), Edit(STEP, _END, _APART + _UPSERT + _END)),
        (
            f"{MOMENT}::test_killed_after_the_commit_it_leaves_all",
            f"{UPSERT}::test_rows_are_there_exactly_once_whatever_was_run_again",
        ),
    ),
    Mutant(
        "projection-before",
        "If a projection were written before the transaction of its step",
        (
            Edit(STEP, _PROJECT, ""),
            Edit(STEP, _BEGIN, _NAMES + _PROJECT_APART + _BEGIN),
        ),
        (f"{MOMENT}::test_killed_before_the_commit_it_leaves_nothing",),
    ),
    Mutant(
        "projection-after",
        "If a projection were written after the transaction of its step",
        (Edit(STEP, _PROJECT, ""), Edit(STEP, _END, _PROJECT_APART + _END)),
        (f"{MOMENT}::test_killed_after_the_commit_it_leaves_all",),
    ),
)  # fmt: skip

_SAME_STEP = (
    Mutant(
        "scratch-start-positions",
        "If after a start from scratch what was made before were read again",
        (Edit("pipeline/restart.py", "        if queue in republished\n",
              "        if False\n"),),
        (
            f"{COMMIT}::TestWhatIsRead::test_what_is_made_anew_from_scratch_is_read_once",
        ),
    ),
    Mutant(
        "snapshot-taken-up",
        "If a step that is run again were another step",
        (Edit("pipeline/snapshot.py",
              "    if state.pending is not None and _can_resume(one, state, remembered):\n",
              "    if False:\n"),),
        (
            f"{COMMIT}::TestWhatIsRead::test_a_step_that_was_begun_is_taken_up_as_it_stands",
            f"{ALGORITHM}::TestStart"
            "::test_1a_a_snapshot_without_its_attempt_is_run_again_with_the_same_ranges",
            "tests/pipeline/steps/test_tables.py::TestTables"
            "::test_a_step_that_is_run_again_finds_the_table_as_it_was",
        ),
    ),
    Mutant(
        "step-snapshot-first",
        "If what a step reads were written down only when it commits",
        (
            Edit(STEP, "        connection.run(state.write_snapshot(context.pipeline.name,"
                       " snapshot))\n", ""),
            Edit(STEP, _BEGIN, _NAMES + """\
    with connection.transaction():
        connection.run(state.write_snapshot(pipeline, snapshot))
        beside ="""),
        ),
        (
            f"{COMMIT}::TestWhatIsRead::test_it_is_written_down_before_it_is_read",
            f"{COMMIT}::TestWhatIsRead::test_a_step_that_was_begun_is_taken_up_as_it_stands",
        ),
    ),
    Mutant(
        "snapshot-ranges",
        "If a step that is run again read its inputs as they are now",
        (Edit(ATTEMPT, "            queue: self._slice(queue, after, until,"
                       " types.get(queue, ()))\n", """\
            queue: self._slice(
                queue, after, self.connection.run(planning.head(queue_target(queue))),
                types.get(queue, ()),
            )
"""),),
        (
            f"{ALGORITHM}::TestStart"
            "::test_1a_a_snapshot_without_its_attempt_is_run_again_with_the_same_ranges",
        ),
    ),
    Mutant(
        "snapshot-tables",
        "If a step that is run again read its tables as they are now",
        (Edit(ATTEMPT, "return {queue: self._slice(queue, *ends)"
                       " for queue, ends in snapshot.tables.items()}", """\
return {
            queue: self._slice(
                queue, ends[0], self.connection.run(planning.head(queue_target(queue)))
            )
            for queue, ends in snapshot.tables.items()
        }"""),),
        (
            "tests/pipeline/steps/test_tables.py::TestTables"
            "::test_a_step_that_is_run_again_finds_the_table_as_it_was",
        ),
    ),
    Mutant(
        "snapshot-ids",
        "If a step on other messages of the same positions had the same hash",
        (Edit("pipeline/snapshot.py", '            facts["last_ids"] = dict(self.last_ids)\n',
              "            pass\n"),),
        (
            "tests/pipeline/steps/test_restored_log.py"
            "::test_a_step_on_other_messages_has_another_hash",
        ),
    ),
)  # fmt: skip

_ERRORS = (
    Mutant(
        "errors-once",
        "If a message went to the errors queue for each task that complains of it",
        (Edit("pipeline/outputs.py", "    if len(tokens) < 2:\n", "    if True:\n"),),
        (
            f"{COMMIT}::TestErrors"
            "::test_a_message_that_two_tasks_complain_of_goes_there_once",
        ),
    ),
    Mutant(
        "errors-of-the-step",
        "If an error that belongs to no message of the step were dropped",
        (Edit(SQL, "  raise exception using errcode = 'PS072',",
              "  return count;\n  raise exception using errcode = 'PS072',"),),
        (f"{COMMIT}::TestErrors::test_a_message_that_the_step_does_not_read_is_refused",),
    ),
)  # fmt: skip

_FILES = (
    Mutant(
        "files-apart",
        "If files were written where readers see them, before their step is committed",
        (Edit("pipeline/delivery.py", ".save(files.attempt)", ".save(files.place)"),),
        ("tests/pipeline/steps/test_files.py::test_files_are_seen_once_their_step_is_committed",),
    ),
    Mutant(
        "files-settled",
        "If nobody moved the files of a run that was killed after its commit",
        (Edit(STEP, "    if context.remembered.files_settled:\n", "    if True:\n"),),
        (
            "tests/pipeline/steps/test_files.py"
            "::test_killed_between_commit_and_files_it_is_made_good",
        ),
    ),
)  # fmt: skip

_LOCKS = (
    Mutant(
        "run-lock",
        "Without the lock of a run",
        (Edit(LOCK, "    while not connection.run(try_lock(_RUN, pipeline)):\n",
              "    while False:\n"),),
        (f"{RUN_LOCK}::test_a_second_run_is_refused",),
    ),
    Mutant(
        "run-lock-regained",
        "If a run that lost its lock to another one went on",
        (Edit(LOCK, "        raise RunLockLost(self.pipeline, found)\n", "        return\n"),),
        (f"{RUN_LOCK}::test_who_lost_it_to_another_run_gets_an_error",),
    ),
    Mutant(
        "processor-lock",
        "Without the lock of a processor",
        (Edit(LOCK, "        while not connection.run(try_lock(_PROCESSOR, name)):\n",
              "        while False:\n"),),
        (
            f"{RUN_LOCK}::TestAProcessor::test_is_run_by_one_at_a_time",
            f"{RUN_LOCK}::TestAProcessor::test_is_not_touched_by_others_while_it_runs",
        ),
    ),
    Mutant(
        "processor-lock-commits",
        "If another connection than the one that commits held the lock of a processor",
        (
            Edit(LOCK, "            locked = all(self._lock(connection, one) for one in"
                       " processors)\n", """\
            holder = open_connection(self.database, label)
            locked = all(self._lock(holder, one) for one in processors)
"""),
            Edit(LOCK, """\
                yield connection if locked else None
            finally:
                _unlock(connection)
""", """\
                yield connection if locked else None
            finally:
                _unlock(holder)
                holder.raw.close()
"""),
        ),
        (f"{RUN_LOCK}::TestAProcessor::test_is_not_committed_by_who_lost_the_lock",),
    ),
    Mutant(
        "processor-lock-of-the-lost",
        "If a connection whose client is gone kept the lock of a processor",
        (Edit(LOCK, "            _end_session(connection, _PROCESSOR, name,"
                    " self._last[processor])\n", "            pass\n"),),
        (f"{RUN_LOCK}::TestAProcessor::test_that_lost_its_client_is_had_again_by_the_same_run",),
    ),
)  # fmt: skip

MUTANTS: tuple[Mutant, ...] = (*_ONCE, *_MOMENT, *_SAME_STEP, *_ERRORS, *_FILES, *_LOCKS)
