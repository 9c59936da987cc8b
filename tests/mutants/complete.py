"""Promise 1: a reader misses nothing."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "watermark",
        "Without the watermark",
        (
            Edit(
                "database/sql/penstock/03_watermark.sql",
                "return least(last_position, lowest_bound - 1);",
                "return last_position;",
            ),
        ),
        (
            "tests/log/test_complete.py"
            "::test_one_late_commit_is_enough_to_be_missed_without_the_watermark",
            "tests/log/test_watermark.py::TestAnOpenWriter"
            "::test_holds_back_what_comes_after_it_until_it_ends",
        ),
    ),
)

EXCUSES: tuple[Excuse, ...] = ()
