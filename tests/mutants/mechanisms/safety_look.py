"""The safety look: what nobody notified of is found for those who wait for it."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

LOOK = "database/sql/penstock/61_safety_look.sql"
TESTS = "tests/log/test_waiter_unnotified.py"
WAKE_UPS = "tests/database/test_wake_ups.py::TestSafetyLook"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "look-messages",
        "If a safety look did not read what was written",
        (Edit(LOOK, "penstock.written_names(after, watermark)", "penstock.written_names(0, 0)"),),
        (
            f"{WAKE_UPS}::test_finds_a_message_of_a_writer_that_does_not_notify",
            f"{WAKE_UPS}::test_finds_what_an_open_writer_held_back",
        ),
    ),
    Mutant(
        "look-queues",
        "If it looked at queues only up to the watermark",
        (Edit(LOOK, "where last.global_position > after", "where false"),),
        (
            f"{WAKE_UPS}::test_finds_a_record_of_a_queue_although_a_writer_is_open",
            f"{TESTS}::test_a_session_finds_what_is_offered",
        ),
    ),
    Mutant(
        "look-topics",
        "If it did not look for due messages of the outbox",
        (Edit(LOOK, "o.topic = t.topic and o.due <= moment", "false"),),
        (
            f"{TESTS}::TestDispatcher"
            "::test_finds_what_is_enqueued_on_a_connection_of_the_application",
            f"{TESTS}::TestDispatcher::test_finds_what_is_given_back_or_retried",
        ),
    ),
    Mutant(
        "look-outbox-leases",
        "If it did not look for leases of the outbox that have ended",
        (Edit(LOOK, "o.lease_until <= moment", "false"),),
        (f"{TESTS}::TestDispatcher::test_finds_what_another_held_whose_lease_has_ended",),
    ),
    Mutant(
        "look-released",
        "If it did not look for partitions that can be claimed",
        (
            Edit(LOOK, "s.queue_position is not null\n        and (s.queue", "false and (s.queue"),
            Edit(LOOK, "where s.queue_position is not null or s.due", "where s.due"),
        ),
        (
            f"{TESTS}::TestWorker::test_finds_a_partition_that_was_released",
            f"{TESTS}::TestWorker::test_finds_one_that_was_resumed",
        ),
    ),
    Mutant(
        "look-claims",
        "If it did not look for claims whose lease has ended",
        (
            Edit(LOOK, "and s.due <= moment)\n", "and false)\n"),
            Edit(LOOK, "is not null or s.due <= moment)", "is not null)"),
        ),
        (f"{TESTS}::TestWorker::test_finds_one_whose_lease_has_ended",),
    ),
    Mutant(
        "look-reset",
        "If it did not look for groups that begin again",
        (Edit(LOOK, "where p.caught_up_at = -1\n    or g", "where g"),
         Edit(LOOK, "greatest(g.created_at, moment - interval '10 seconds')", "moment")),
        (f"{TESTS}::TestWorker::test_begins_again_after_a_reset",),
    ),
    Mutant(
        "look-started",
        "If it did not look for groups that were started again",
        (Edit(LOOK, "greatest(g.created_at, moment - interval '10 seconds')", "moment"),),
        (f"{TESTS}::TestWorker::test_goes_on_when_the_group_is_started_again",),
    ),
)  # fmt: skip
