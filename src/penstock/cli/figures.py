"""The figures of how a store stands, as a table: a row for each consumer, session, group, topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from rich.table import Table

from penstock.admin.health import HealthFigure
from penstock.cli.printing import printable, shown_age, table


def figures_table(figures: Sequence[HealthFigure]) -> Table:
    """Return the figures, a row for each that they are about, but for the log's own."""
    listed = table(
        who="left",
        lag="right",
        parked="right",
        failed="right",
        oldest_claim="right",
        claimed="left",
    )
    rows: dict[str, dict[str, str]] = {}
    for one in figures:
        kind, _, measure = one.name.partition(".")
        if kind != "watermark":  # is told with the log's facts
            row = rows.setdefault(" ".join([kind, *one.subject.values()]), {})
            row[measure] = _SHOWN[measure](one)
            if measure == "claim_age":
                row["claimed"] = f"{one.detail['partition_key']} by {one.detail['claimed_by']}"
    for who, row in rows.items():
        cells = [row.get(name, "-") for name in ("lag", "parked", "failed", "claim_age")]
        listed.add_row(printable(who), *cells, printable(row.get("claimed", "")))
    return listed


def _age(figure: HealthFigure) -> str:
    return shown_age(timedelta(seconds=figure.value))


def _count(figure: HealthFigure) -> str:
    return f"{figure.value:g}{'+' if figure.detail.get('at_least') else ''}"


_SHOWN: dict[str, Callable[[HealthFigure], str]] = {
    "lag": _age,
    "claim_age": _age,
    "parked": _count,
    "failed": _count,
}
