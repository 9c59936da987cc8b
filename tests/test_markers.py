"""The lists that mark tests name files and folders that exist: else a moved one loses its mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SLOW, SPARK

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("listed", [*SPARK, *SLOW])
def test_what_is_marked_exists(listed: str) -> None:
    assert (ROOT / listed.partition("::")[0]).exists()
