"""What a user may say in `.option(…)`: read once, checked, and turned into values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import ValidationError
from penstock.message import check_text, names
from penstock.message.conditions import attribute_text
from penstock.spark.read.target import Target

#: what Spark itself puts among the options
_OF_SPARK = {"checkpointlocation", "path", "queryname", "name", "outputmode"}
_READ = {
    "url", "category", "stream", "attributes", "types", "after", "until", "partitions", "columns",
    "maxrowsperbatch", "onwrongtype", "failondataloss", "onrestore",
}  # fmt: skip
_WRITE = {"url", "delivery", "order_by", "orderby", "atomic", "rowspertransaction"}
LATEST = "latest"
#: readers of the log wait for a transaction that publishes: with so many rows, about a second
ROWS_PER_TRANSACTION = 25_000


@dataclass(frozen=True)
class ReadOptions:
    """What to read and how."""

    url: str | None
    target: Target
    columns: tuple[str, ...] | None
    after: int | str | None
    until: int | None
    partitions: int
    max_rows_per_batch: int | None
    null_if_wrong: bool
    fail_on_data_loss: bool
    #: where to go on if the log was restored to an earlier state; None: say so
    on_restore: int | None


@dataclass(frozen=True)
class WriteOptions:
    """Where to write and how."""

    url: str | None
    delivery: str | None
    order_by: str | None
    #: above so many rows, in several transactions; None: always in one
    rows_per_transaction: int | None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read."""
    said = _known(options, _READ)
    return ReadOptions(
        url=said.get("url"),
        target=_target(said),
        columns=_list(said, "columns") or None,
        after=LATEST if said.get("after") == LATEST else _number(said, "after", -1),
        until=_number(said, "until", -1),
        partitions=_number(said, "partitions", 1) or 4,
        max_rows_per_batch=_number(said, "maxrowsperbatch", 1, "maxRowsPerBatch"),
        null_if_wrong=_choice(said, "onwrongtype", "onWrongType", ("error", "null")) == "null",
        fail_on_data_loss=_choice(said, "failondataloss", "failOnDataLoss", ("true", "false"))
        == "true",
        on_restore=_number(said, "onrestore", -1, "onRestore"),
    )


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Return the options of a write."""
    said = _known(options, _WRITE)
    if "delivery" in said:
        check_text("delivery", said["delivery"])
    return WriteOptions(
        url=said.get("url"),
        delivery=said.get("delivery"),
        order_by=said.get("order_by") or said.get("orderby"),
        rows_per_transaction=_rows_per_transaction(said, "delivery" in said or streaming),
    )


def _rows_per_transaction(said: Mapping[str, str], named: bool) -> int | None:
    """Return how many rows may be published at once, where a retry is known by its delivery."""
    atomic = _choice(said, "atomic", "atomic", ("false", "true")) == "true"
    rows = _number(said, "rowspertransaction", 1, "rowsPerTransaction")
    if rows is not None and atomic:
        raise ValidationError("rowsPerTransaction", rows, "left out: atomic is one transaction")
    if not named and (rows is not None or said.get("atomic", "true").lower() == "false"):
        name, value = ("atomic", "false") if rows is None else ("rowsPerTransaction", rows)
        expected = "together with a delivery: by its name a re-run finds what is published already"
        raise ValidationError(name, value, expected)
    return None if atomic or not named else rows or ROWS_PER_TRANSACTION


def _known(options: Mapping[str, str], known: set[str]) -> dict[str, str]:
    said = {name.lower(): value for name, value in options.items()}
    for name in said:
        if name not in known | _OF_SPARK:
            raise ValidationError("option", name, f"one of {', '.join(sorted(known))}")
    return said


def _target(said: Mapping[str, str]) -> Target:
    given = [name for name in ("category", "stream", "attributes") if said.get(name)]
    if len(given) != 1:
        expected = 'exactly one of category ("$all" for the whole log), stream and attributes'
        raise ValidationError("options", given, expected)
    types = tuple(check_text("types", one) for one in _list(said, "types"))
    if category := said.get("category"):
        if category != "$all" and not names.is_category(category):
            raise ValidationError("category", category, "a category, which has no '-'")
        return Target(category=check_text("category", category), types=types)
    if stream := said.get("stream"):
        if names.is_category(stream):
            expected = "a stream name, which has a '-'; for a category use option category"
            raise ValidationError("stream", stream, expected)
        return Target(stream=check_text("stream", stream), types=types)
    return Target(attributes=_attributes(said["attributes"]), types=types)


def _attributes(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    expected = 'a JSON object of names and values, such as {"course": "Algebra"}'
    try:
        found: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise ValidationError("attributes", text, expected) from None
    if not isinstance(found, dict) or not found or [] in found.values():
        raise ValidationError("attributes", text, expected)
    values = {n: v if isinstance(v, list) else [v] for n, v in found.items()}
    return tuple((n, tuple(attribute_text(n, one) for one in vs)) for n, vs in values.items())


def _list(said: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return a list that is given as `a, b` or as a JSON list."""
    text = said.get(name, "").strip()
    if text.startswith("["):
        try:
            return tuple(msgspec.json.decode(text, type=list[str]))
        except msgspec.MsgspecError:
            raise ValidationError(name, text, "a JSON list of names") from None
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _number(
    said: Mapping[str, str], name: str, lowest: int, shown: str | None = None
) -> int | None:
    text = said.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"-?\d{1,18}", text) or int(text) < lowest:
        raise ValidationError(shown or name, text, f"a whole number from {lowest}")
    return int(text)


def _choice(said: Mapping[str, str], name: str, shown: str, allowed: tuple[str, ...]) -> str:
    """Return which of the allowed words was said; the first one if none was."""
    text = said.get(name, allowed[0]).lower()
    if text not in allowed:
        raise ValidationError(shown, text, " or ".join(allowed))
    return text
