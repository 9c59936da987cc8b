"""The options of `format("penstock")`: parsed once, checked, and turned into values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from penstock.errors import ValidationError
from penstock.message import check_text, names
from penstock.message.conditions import attribute_text
from penstock.settings import LONGEST_LAG, Settings, check_url
from penstock.spark.target import Target

#: options that Spark itself adds
_SPARK_OPTIONS = {"checkpointlocation", "path", "queryname", "name", "outputmode"}
_READ = {
    "url", "category", "stream", "attributes", "types", "after", "until", "partitions", "columns",
    "maxrowsperbatch", "onwrongtype", "failondataloss", "onrestore", "lakeoptions",
    "replica", "maxreplicalag", "replicafallback", "withoutarchive",
}  # fmt: skip
_WRITE = {"url", "delivery", "order_by", "orderby", "atomic", "rowspertransaction"}
LATEST = "latest"
#: readers of the log wait for a publishing transaction: about a second for so many rows
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
    #: where to continue if the log was restored to an earlier state; None: raise
    on_restore: int | None
    #: settings of the replica, as far as they are given
    replica: Mapping[str, Any]
    #: how to sign in to the warehouse of the archive
    lake_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    #: the location of an earlier state of the archive; what it had then is left out
    without_archive: str | None = None

    def signed_in(self, lake_options: Mapping[str, str]) -> ReadOptions:
        """Return the same for a target that can be read in the archive."""
        found = {**lake_options, **self.lake_options}
        return replace(self, target=replace(self.target, lake_options=found))


@dataclass(frozen=True)
class WriteOptions:
    """Where to write and how."""

    url: str | None
    delivery: str | None
    order_by: str | None
    #: above so many rows, publish in several transactions; None: always in one
    rows_per_transaction: int | None


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read."""
    given = _known(options, _READ)
    return ReadOptions(
        url=given.get("url"),
        target=_target(given),
        columns=_list(given, "columns") or None,
        after=LATEST if given.get("after") == LATEST else _number(given, "after", -1),
        until=_number(given, "until", -1),
        partitions=_number(given, "partitions", 1) or 4,
        max_rows_per_batch=_number(given, "maxRowsPerBatch", 1),
        null_if_wrong=_choice(given, "onWrongType", "error", "null") == "null",
        fail_on_data_loss=_choice(given, "failOnDataLoss", "true", "false") == "true",
        on_restore=_number(given, "onRestore", -1),
        replica=_replica(given),
        lake_options=_texts(given, "lakeOptions"),
        without_archive=given.get("withoutarchive"),
    )


def replica_options(settings: Settings) -> dict[str, str]:
    """Return the options with which a read uses the replica of these settings."""
    if settings.replica is None:
        return {}
    return {
        "replica": settings.replica,
        "maxReplicaLag": str(settings.max_replica_lag),
        "replicaFallback": str(settings.replica_fallback).lower(),
    }


def _replica(given: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "replica" in given:
        check_url(given["replica"], "replica")
        found["replica"] = given["replica"]
    if "maxreplicalag" in given:
        text = given["maxreplicalag"]
        if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) > LONGEST_LAG:
            raise ValidationError("maxReplicaLag", text, f"between 0 and {LONGEST_LAG:,} seconds")
        found["max_replica_lag"] = float(text)
    if "replicafallback" in given:
        found["replica_fallback"] = _choice(given, "replicaFallback", "true", "false") == "true"
    return found


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Return the options of a write."""
    given = _known(options, _WRITE)
    if "delivery" in given:
        check_text("delivery", given["delivery"])
    return WriteOptions(
        url=given.get("url"),
        delivery=given.get("delivery"),
        order_by=given.get("order_by") or given.get("orderby"),
        rows_per_transaction=_rows_per_transaction(given, "delivery" in given or streaming),
    )


def _rows_per_transaction(given: Mapping[str, str], named: bool) -> int | None:
    """Return how many rows to publish at once, if the delivery has a name to resume by."""
    atomic = _choice(given, "atomic", "false", "true") == "true"
    rows = _number(given, "rowsPerTransaction", 1)
    if rows is not None and atomic:
        raise ValidationError("rowsPerTransaction", rows, "left out: atomic is one transaction")
    if not named and (rows is not None or given.get("atomic", "true").lower() == "false"):
        name, value = ("atomic", "false") if rows is None else ("rowsPerTransaction", rows)
        expected = "given with a delivery: a second run finds by its name what is published already"
        raise ValidationError(name, value, expected)
    return None if atomic or not named else rows or ROWS_PER_TRANSACTION


def _known(options: Mapping[str, str], known: set[str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in known | _SPARK_OPTIONS:
            raise ValidationError("option", name, f"one of {', '.join(sorted(known))}")
    return given


def _target(given: Mapping[str, str]) -> Target:
    targets = [name for name in ("category", "stream", "attributes") if given.get(name)]
    if len(targets) != 1:
        expected = 'exactly one of category ("$all" for the whole log), stream and attributes'
        raise ValidationError("options", targets, expected)
    types = tuple(check_text("types", one) for one in _list(given, "types"))
    if category := given.get("category"):
        if category != "$all" and not names.is_category(category):
            raise ValidationError("category", category, "a category, which has no '-'")
        return Target(category=check_text("category", category), types=types)
    if stream := given.get("stream"):
        if names.is_category(stream):
            expected = "a stream name, which has a '-'; for a category use option category"
            raise ValidationError("stream", stream, expected)
        return Target(stream=check_text("stream", stream), types=types)
    return Target(attributes=_attributes(given["attributes"]), types=types)


def _attributes(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    expected = 'a JSON object of names and values, such as {"course": "Algebra"}'
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        found = {}
    if not found or [] in found.values():
        raise ValidationError("attributes", text, expected)
    values = {n: v if isinstance(v, list) else [v] for n, v in found.items()}
    return tuple((n, tuple(attribute_text(n, one) for one in vs)) for n, vs in values.items())


def _list(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return a list that is given as `a, b` or as a JSON list."""
    text = given.get(name, "").strip()
    if text.startswith("["):
        try:
            return tuple(msgspec.json.decode(text, type=list[str]))
        except msgspec.MsgspecError:
            raise ValidationError(name, text, "a JSON list of names") from None
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _texts(given: Mapping[str, str], name: str) -> dict[str, str]:
    """Return a JSON object of texts; an error does not show it, since it may contain a password."""
    try:
        return msgspec.json.decode(given.get(name.lower(), "{}"), type=dict[str, str])
    except msgspec.MsgspecError:
        raise ValidationError(name, "***", "a JSON object of texts") from None


def _number(given: Mapping[str, str], name: str, lowest: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"-?\d{1,18}", text) or int(text) < lowest:
        raise ValidationError(name, text, f"a whole number from {lowest}")
    return int(text)


def _choice(given: Mapping[str, str], name: str, *allowed: str) -> str:
    """Return the word that is given, or the first of those allowed if none is."""
    text = given.get(name.lower(), allowed[0]).lower()
    if text not in allowed:
        raise ValidationError(name, text, " or ".join(allowed))
    return text
