"""What Spark reads is complete, and the log that it goes on with is the one that it began with."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

TARGET = "spark/target.py"
READERS = "spark/read/readers.py"
PLANNING = "spark/read/planning.py"
READING = "tests/spark/read/test_reading.py"
OFFSETS = "tests/spark/read/test_offsets.py"
RESTORED = "tests/spark/faults/test_restored.py::TestOffsets"
STREAMING = "tests/spark/faults/test_streaming.py"

_HEAD = 'sql.SQL("select penstock.category_head({})").format(self.category)'

_COMPLETE = (
    Mutant(
        "spark-watermark",
        "If Spark read a category up to the last message that is visible",
        (Edit(TARGET, _HEAD, """sql.SQL(
            "select coalesce(max(m.global_position), 0) from message_store.messages m"
            " where {} in ('$all', message_store.category(m.stream_name))"
        ).format(self.category)"""),),
        (
            f"{READING}::test_a_message_that_is_not_committed_hides_itself_and_all_later_ones",
            f"{OFFSETS}::test_a_batch_ends_before_a_message_that_is_not_committed",
            "tests/pipeline/steps/test_commit.py::TestWhatIsRead"
            "::test_it_ends_before_a_message_that_is_not_committed",
        ),
    ),
    Mutant(
        "spark-offset-is-a-message",
        "If an offset were the watermark, and not a message that was read",
        (Edit(TARGET, _HEAD, 'sql.SQL("select penstock.watermark()").format()'),),
        (f"{OFFSETS}::test_it_ends_at_a_message_and_not_at_a_position_that_was_rolled_back",),
    ),
    Mutant(
        "spark-until",
        "If who says how far to read were not held to the watermark",
        (Edit(READERS,
              "until = head if options.until is None else min(head, options.until)",
              "until = head if options.until is None else options.until"),),
        (f"{READING}::test_nor_is_it_passed_by_who_says_how_far_to_read",),
    ),
    Mutant(
        "spark-stream-until",
        "If a stream that ends somewhere were not held to the watermark",
        (Edit(READERS, "self._latest = head if self._until is None else min(head, self._until)",
              "self._latest = head if self._until is None else self._until"),),
        (f"{OFFSETS}::test_a_batch_ends_before_a_message_that_is_not_committed",),
    ),
    Mutant(
        "spark-planned",
        "If a task read what was written after the plan",
        (Edit(TARGET, '            " <= ({category}, {until})"\n',
              '            " <= ({category}, {until} + 1000)"\n'),),
        (
            f"{READING}::test_what_is_written_after_the_plan_is_not_read",
            f"{OFFSETS}::test_all_batches_together_have_every_message_once",
        ),
    ),
    Mutant(
        "spark-offsets-forward",
        "If an offset could go back",
        (
            Edit(READERS, "        if head <= after:\n", "        if head == after:\n"),
            Edit(READERS, "return self._offset(max(after, head))", "return self._offset(head)"),
        ),
        (f"{OFFSETS}::test_it_never_ends_before_it_begins",),
    ),
    Mutant(
        "spark-removed",
        "If retention could remove what a planned batch has not read",
        (Edit(READERS, "        if partition.complete:\n", "        if False:\n"),),
        (
            f"{STREAMING}::TestBelowRetention"
            "::test_what_is_removed_after_it_was_planned_is_missed_no_less",
        ),
    ),
)  # fmt: skip

_SAME_LOG = (
    Mutant(
        "spark-log-changed",
        "If a checkpoint were not held against the message that the log has there",
        (Edit(PLANNING, "    if not same:\n", "    if False:\n"),),
        (
            f"{RESTORED}::test_a_log_that_changes_under_a_query_is_noticed",
            f"{RESTORED}::test_a_batch_that_was_planned_before_is_not_read_from_another_log",
        ),
    ),
    Mutant(
        "spark-planned-log",
        "If a batch that was planned before were read from whatever log there is",
        (Edit(READERS, "        if checks and not self._checked and self._moved(end):\n",
              "        if False:\n"),),
        (
            f"{RESTORED}::test_a_batch_that_was_planned_before_is_not_read_from_another_log",
            f"{STREAMING}::TestBeyondTheEnd"
            "::test_a_batch_that_was_planned_there_is_not_taken_for_empty",
        ),
    ),
    Mutant(
        "spark-beyond-the-end",
        "If an offset beyond the end were taken for nothing new",
        (Edit(PLANNING, "    if position > last:\n", "    if False:\n"),),
        (
            f"{STREAMING}::TestBeyondTheEnd"
            "::test_a_batch_that_was_planned_there_is_not_taken_for_empty",
            f"{STREAMING}::TestBeyondTheEnd::test_a_stream_is_held_against_its_own_end",
        ),
    ),
    Mutant(
        "spark-on-restore",
        "If a query did not go on where onRestore says",
        (Edit(READERS, "                position = self.options.on_restore\n",
              "                pass\n"),),
        (f"{RESTORED}::test_a_batch_that_was_planned_before_is_not_read_from_another_log",),
    ),
)  # fmt: skip

MUTANTS: tuple[Mutant, ...] = (*_COMPLETE, *_SAME_LOG)
