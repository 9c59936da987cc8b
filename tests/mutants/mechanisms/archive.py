"""Promise 1, where old messages are moved to the archive."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

ARCHIVE = "database/sql/penstock/23_archive.sql"
TESTS = "tests/log/test_archive.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "archive-until",
        "If a read returned archived messages above its watermark",
        tuple(
            Edit(
                f"database/{module}.py",
                "    until = mark[_GLOBAL_POSITION]\n",
                "    until = None\n",
            )
            for module in ("archive_read", "archive_read_async")
        ),
        (
            f"{TESTS}::TestReads"
            "::test_messages_that_were_written_and_archived_later_are_not_read_early",
        ),
    ),
    Mutant(
        "archive-digest",
        "If messages were deleted without a look at what the files hold",
        (
            Edit(
                ARCHIVE,
                "or gone.digest is distinct from digest then\n"
                "    raise exception using errcode = 'PS093',",
                "and false then\n    raise exception using errcode = 'PS093',",
            ),
        ),
        (
            f"{TESTS}::TestMoving::test_files_that_hold_other_messages_move_nothing",
            f"{TESTS}::TestMoving::test_a_message_that_is_removed_meanwhile_is_noticed",
        ),
    ),
    Mutant(
        "archive-bulk-write",
        "If messages were moved while their category is written in bulk",
        (
            Edit(
                ARCHIVE,
                """  if not pg_try_advisory_xact_lock_shared(message_store.hash_64(category)) then
    raise exception using errcode = 'PS092',""",
                """  if false then
    raise exception using errcode = 'PS092',""",
            ),
        ),
        (f"{TESTS}::TestMoving::test_a_category_that_is_written_in_bulk",),
    ),
    Mutant(
        "archive-unread",
        "If messages were moved that a consumer has not read",
        (
            Edit(
                ARCHIVE,
                """  if unread.time < keep_since at time zone 'utc' then
    raise exception using errcode = 'PS095',""",
                """  if false then
    raise exception using errcode = 'PS095',""",
            ),
        ),
        (f"{TESTS}::TestMoving::test_unread_messages_are_not_moved",),
    ),
    Mutant(
        "archive-condition",
        "If a read with an SQL condition left out the archived messages",
        (
            Edit(
                ARCHIVE,
                """  if exists (select from penstock.archive_mark(target, first, null)) then
    raise exception using errcode = 'PS091',""",
                """  if false then
    raise exception using errcode = 'PS091',""",
            ),
        ),
        (
            f"{TESTS}::TestReads::test_a_condition_is_refused_where_it_would_meet_the_archive",
            f"{TESTS}::TestReads::test_correlation_with_a_prefix_of_archived_streams_is_refused",
        ),
    ),
    Mutant(
        "archive-lost",
        "If a lost table of the archive were no error",
        (
            Edit(
                ARCHIVE,
                """  if location is null then
    raise exception using errcode = 'PS090',""",
                """  if false then
    raise exception using errcode = 'PS090',""",
            ),
        ),
        (f"{TESTS}::TestUnreachable::test_an_archive_that_is_not_in_the_catalog",),
    ),
)
