"""A duration is a number of seconds or a timedelta, the same everywhere."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from penstock.errors import ValidationError
from penstock.loops.durations import seconds


@pytest.mark.parametrize("value", [90, 90.0, timedelta(minutes=1.5)])
def test_seconds_and_timedeltas_mean_the_same(value: Any) -> None:
    assert seconds("lease", value) == 90.0


@pytest.mark.parametrize(
    "value", [-1, 11, timedelta(seconds=-1), timedelta(days=1), math.nan, math.inf, True, "5", None]
)
def test_what_is_out_of_range_or_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="lease must be seconds or a timedelta, between 0 "):
        seconds("lease", value, most=10)


def test_the_error_names_the_value_and_the_range() -> None:
    with pytest.raises(ValidationError) as caught:
        seconds("lease", timedelta(days=2), least=0.001, most=86_400)

    assert str(caught.value) == (
        "lease must be seconds or a timedelta, between 0.001 and 86,400 seconds; "
        "got datetime.timedelta(days=2)"
    )


def test_a_duration_may_have_no_upper_limit() -> None:
    assert seconds("delay", math.inf, most=math.inf) == math.inf
    with pytest.raises(ValidationError, match="of 0 seconds or more"):
        seconds("delay", -1, most=math.inf)
