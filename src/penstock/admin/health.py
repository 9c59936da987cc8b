"""Figures of a store's health, which `penstock status` shows and gauges measure.

The figures and their cost are described in `sql/penstock/60_health.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.database.operation import Operation, call
from penstock.log.context import LogContext

_SUBJECT = ("category", "stream_name", "group_id", "topic", "consumer_id", "pipeline", "processor")


@dataclass(frozen=True, slots=True)
class HealthFigure:
    """One figure of a store's health. Lags and ages are in seconds."""

    #: subject and measure, such as `consumer.lag` or `outbox.failed`
    name: str
    value: float
    #: the subject and other facts, such as the pid that holds the watermark back
    detail: Mapping[str, Any]

    @property
    def subject(self) -> dict[str, str]:
        """The subject: a consumer and its category, a group, a topic; empty for the store."""
        return {name: self.detail[name] for name in _SUBJECT if name in self.detail}


def health(context: LogContext) -> Operation[list[HealthFigure]]:
    """Read the figures, with index lookups only."""
    context.require_penstock("health")
    return call(
        "health",
        "select name, value, detail from penstock.health()",
        (),
        lambda rows: [HealthFigure(*row) for row in rows],
    )
