"""Promise 1, in a log that was restored or truncated."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

WATERMARK = "database/sql/penstock/03_watermark.sql"
IDENTITY = "database/sql/penstock/08_identity.sql"
TRUNCATE = "database/sql/penstock/70_truncate.sql"
IDENTITY_TESTS = "tests/log/test_identity.py"
TRUNCATE_TESTS = "tests/log/test_truncate.py"

RESTORED = (
    Mutant(
        "resumed-by-position",
        "If a reader went on by the position alone, whatever stands there now",
        (Edit(IDENTITY, "  return found_id = id\n    or", "  return true or"),),
        (
            f"{IDENTITY_TESTS}::test_who_resumes_on_a_restored_log_gets_an_error",
            f"{IDENTITY_TESTS}::test_a_follower_notices_that_the_log_is_another",
            "tests/spark/faults/test_restored.py::TestOffsets"
            "::test_a_log_that_changes_under_a_query_is_noticed",
            "tests/spark/faults/test_restored.py::TestOffsets"
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
            f"{IDENTITY_TESTS}::test_who_resumes_on_a_restored_log_gets_an_error",
            f"{IDENTITY_TESTS}::test_a_follower_notices_that_the_log_is_another",
        ),
    ),
    Mutant(
        "follower-without-a-message",
        "If a follower's next page were not held against the last message of the one before",
        tuple(
            Edit(
                file,
                "last = page[-1] if self.context.edition.has_watermark else None",
                "last = None",
                times=2,
            )
            for file in ("log/calls.py", "log/calls_async.py")
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
            "tests/spark/faults/test_restored.py::TestOffsets"
            "::test_an_offset_where_no_message_is_goes_by_the_incarnation",
        ),
    ),
    Mutant(
        "removed-is-another-log",
        "If a message that retention removed were taken for a sign of another log",
        (
            Edit(
                IDENTITY,
                "\n          or penstock.was_removed(target, position)\n",
                "\n",
            ),
        ),
        (
            f"{IDENTITY_TESTS}::test_a_message_that_retention_removed_is_resumed_after",
            "tests/spark/faults/test_restored.py::TestOffsets"
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
            f"{TRUNCATE_TESTS}::test_a_follower_gets_an_error",
            f"{TRUNCATE_TESTS}::test_an_async_follower_gets_an_error",
        ),
    ),
    Mutant(
        "planned-batch",
        "If a batch that Spark had planned before were read from another log",
        (
            Edit(
                "spark/read/readers.py",
                "        if checks and not self._checked and self._moved(end):",
                "        if False and checks and not self._checked and self._moved(end):",
            ),
        ),
        (
            "tests/spark/faults/test_restored.py::TestOffsets"
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
        "If a processor were the same generation after its log was truncated",
        (
            Edit(
                TRUNCATE,
                "  set generation = p.generation + 1, start_positions",
                "  set start_positions",
            ),
        ),
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

MUTANTS: tuple[Mutant, ...] = (*RESTORED, *FORGOTTEN)
