"""A failure policy is made from attempts and delays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import FailurePolicy
from penstock.errors import ValidationError


def test_a_failure_policy_takes_delays_in_seconds_or_as_timedelta() -> None:
    policy = FailurePolicy.park(3, delay=timedelta(seconds=2), longest_delay=timedelta(minutes=1))

    assert policy == FailurePolicy.park(3, delay=2, longest_delay=60)
    with pytest.raises(ValidationError, match="delay must be at most longest_delay; got 2"):
        FailurePolicy.park(3, delay=2, longest_delay=1)
