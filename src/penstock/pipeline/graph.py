"""A pipeline's graph: its declarations, as frozen values, apart from what runs them.

A processor reads categories or streams of the log, its queues. A source brings messages in, a
stream turns messages into others, a sink takes them elsewhere, a projection keeps a table of
current states, a table keeps rows in the lake, an archive moves old messages there. Each
declaration has its file and line, so that a mistake is reported there.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import GraphError, ValidationError, shown
from penstock.lake.declaration import LakeTable, check_table_name, lake_table
from penstock.loops.durations import Duration, parse_duration, seconds
from penstock.message import check_text, names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.runner import Summary
    from penstock.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])
Names = str | Sequence[str]
Types = Sequence[str] | Mapping[str, Sequence[str]]
LIMIT = 100_000
MAX_CONSECUTIVE_ERRORS = 5


@dataclass(frozen=True)
class Latest:
    """A table of which only the last message of each stream counts."""

    queue: str


Tables = str | Latest | Sequence[str | Latest]


@dataclass(frozen=True)
class MessageSchema:
    """The fields that the messages of a category or stream have in Spark."""

    name: str
    data: str | None
    metadata: str | None
    location: str


@dataclass(frozen=True)
class TableColumns:
    """The table of a projection: its name, and its columns as a Spark schema."""

    table: str
    columns: str


@dataclass(frozen=True)
class OldMessages:
    """What an archive moves, and how often."""

    category: str
    older_than: timedelta
    every: timedelta


@dataclass(frozen=True)
class Processor:
    """A declared source, stream, sink, projection, table or archive."""

    kind: str
    name: str
    function: Callable[..., Any] = field(repr=False)
    location: str
    inputs: tuple[str, ...] = ()
    alts: tuple[str, ...] = ()
    tables: tuple[str | Latest, ...] = ()
    outputs: tuple[str, ...] = ()
    errors: str | None = None
    max_consecutive_errors: int = MAX_CONSECUTIVE_ERRORS
    types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    limit: int = LIMIT
    keeps: TableColumns | None = None
    lake: LakeTable | None = None
    #: of a source: the Iceberg table whose rows it gets
    from_table: str | None = None
    archives: OldMessages | None = None

    @property
    def uses_lake(self) -> bool:
        """Whether it reads or writes an Iceberg table."""
        return any(part is not None for part in (self.lake, self.from_table, self.archives))

    @property
    def rebuilds(self) -> bool:
        """Whether, from scratch, it builds a new table beside the old one, and then replaces it."""
        return self.keeps is not None or self.lake is not None

    @property
    def reads(self) -> tuple[str, ...]:
        """The queues that it has a tailer on."""
        return self.inputs or self.alts

    @property
    def looks_up(self) -> tuple[str, ...]:
        """The queues that it reads as tables."""
        return tuple(one.queue if isinstance(one, Latest) else one for one in self.tables)

    @property
    def publishes(self) -> tuple[str, ...]:
        """The queues that it writes to."""
        return (*self.outputs, self.errors) if self.errors else self.outputs

    def can_read(self, queues: Collection[str]) -> bool:
        """Whether a step can begin when there are new messages in these queues."""
        if self.alts:
            return any(queue in queues for queue in self.alts)
        return bool(self.inputs) and all(queue in queues for queue in self.inputs)


class Pipeline:
    """A pipeline: declare its processors with the decorators, then call `run`.

    `Runner` and `penstock run` have more ways to run it.
    """

    def __init__(self, name: str) -> None:
        check_text("name", name)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
            raise ValidationError("name", name, "letters, digits, '_' and '.'")
        self.name = name
        self.processors: dict[str, Processor] = {}
        self.schemas: dict[str, MessageSchema] = {}

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {', '.join(self.processors) or 'empty'}>"

    def run(
        self,
        store: Store,
        spark: SparkSession | None = None,
        *,
        wait: bool = False,
        check: bool = True,
    ) -> Summary:
        """Process all that is in the log now: short for `Runner(...).run_until_idle()`.

        It raises `RunFailed` if a processor failed; with `check=False` the summary has the errors.
        """
        from penstock.pipeline.runner import Runner

        return Runner(self, store, spark).run_until_idle(wait=wait, check=check)

    def schema(self, name: str, data: str | None = None, *, metadata: str | None = None) -> str:
        """Declare a category or stream: that it exists, and the fields of its messages.

        `data` is a schema as Spark writes it: `"order_id string, amount double"`. With one, `data`
        is a struct in every frame of this category; without, it is JSON text.
        """
        where = _caller(2)
        if name in self.schemas:
            problem = f"the schema of {name} is declared already, at {self.schemas[name].location}"
            raise GraphError(problem, where)
        check_queue(name, where)
        self.schemas[name] = MessageSchema(name, data, metadata, where)
        return name

    def source(
        self, *, output: Names, table: str | None = None, name: str | None = None
    ) -> Callable[[Function], Function]:
        """Declare a function that brings messages in: it returns a frame of messages.

        It runs once. With a parameter `delivery` it can continue where it stopped: it gets
        `delivery.cursor`, what it passed to `delivery.advance(cursor)` the last time, and runs
        again until it returns None.

        With `table`, an Iceberg table in the catalog such as `"shop.import"`, it gets a frame of
        the rows that were added to it since its last step, by the name `rows`. Its cursor is the
        snapshot up to which it has read.
        """
        if table is not None:
            try:
                check_table_name(table)
            except ValidationError as error:
                raise GraphError(str(error), _caller(2)) from None
        return self._declare("source", name, outputs=output, from_table=table)

    def stream(
        self,
        *,
        output: Names = (),
        inputs: Names = (),
        alts: Names = (),
        tables: Tables = (),
        types: Types = (),
        errors: str | None = None,
        max_consecutive_errors: int = MAX_CONSECUTIVE_ERRORS,
        limit: int = LIMIT,
        name: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a function that turns messages into others, exactly once.

        It gets a frame for each input and table, by their names (for `alts`, one frame of the first
        that has messages), and returns a frame of messages (see `messages`), a dictionary of them
        by output if there are several, or None.

        Args:
            inputs: categories or streams; a step takes the new messages of all of them, once each
                has some.
            alts: categories or streams in order of preference; a step takes the first that has
                messages.
            tables: categories or streams that are read whole; `Latest(name)` for the last message
                of each stream.
            output: the category or stream, or several, for what it returns.
            types: take only these types of messages, of all inputs or by input.
            errors: the category or stream for messages that make the function fail. With it, rows
                of the one input must not depend on each other, so that a step can be split.
            max_consecutive_errors: when so many messages in a row fail for one reason, none of
                them is blamed: the processor stops.
            limit: how many messages a step takes at most.
            name: of the processor; the function's if not given.
        """
        return self._declare(
            "stream", name, inputs=inputs, alts=alts, tables=tables, outputs=output, types=types,
            errors=errors, max_consecutive_errors=max_consecutive_errors, limit=limit,
        )  # fmt: skip

    def sink(
        self,
        *,
        inputs: Names = (),
        alts: Names = (),
        tables: Tables = (),
        types: Types = (),
        errors: str | None = None,
        max_consecutive_errors: int = MAX_CONSECUTIVE_ERRORS,
        limit: int = LIMIT,
        name: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a function that takes messages elsewhere, at least once.

        `delivery.hash` names the step and stays the same when it is run again; with
        `delivery.upsert` rows are merged into a table of this database exactly once. The arguments
        are those of `stream`.
        """
        return self._declare(
            "sink", name, inputs=inputs, alts=alts, tables=tables, types=types,
            errors=errors, max_consecutive_errors=max_consecutive_errors, limit=limit,
        )  # fmt: skip

    def project(
        self,
        category: str,
        *,
        into: str,
        columns: str,
        types: Sequence[str] = (),
        limit: int = LIMIT,
        name: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a function that folds the events of each stream into a row of a table.

        `function(state, message)` gets the row as a dictionary (None before the first event) and
        returns the new one, or None to remove it. The table has the stream's name, the columns, and
        the position of the last event; it changes in the same transaction as the tailer.

        Args:
            category: its streams are the entities.
            into: the table's name, with or without a schema.
            columns: its columns, as a Spark schema: `"balance double, opened timestamp"`.
            types: fold only these types of messages.
            limit: how many messages a step takes at most.
            name: of the processor; the function's if not given.
        """
        keeps = TableColumns(into, columns)
        return self._declare(
            "projection", name, inputs=(category,), types=types, limit=limit, keeps=keeps
        )

    def table(
        self,
        table: str,
        *,
        inputs: Names = (),
        alts: Names = (),
        tables: Tables = (),
        types: Types = (),
        partition_by: Names = (),
        sort_by: Names = (),
        key: Names | None = None,
        mode: str | None = None,
        errors: str | None = None,
        max_consecutive_errors: int = MAX_CONSECUTIVE_ERRORS,
        limit: int = LIMIT,
        name: str | None = None,
    ) -> Callable[[Function], Function]:
        """Declare a function whose rows are kept in an Iceberg table, exactly once.

        It returns a frame of any columns. The table's new snapshot becomes visible in the
        transaction that commits the step. The table is created with the first step. Columns that a
        later frame adds are added to it; those that it lacks are null.

        Args:
            table: namespace and name in the catalog: `"shop.invoice_line"`.
            partition_by: columns, or `year`, `month`, `day`, `hour(column)`, `bucket(n, column)`,
                `truncate(n, column)`.
            sort_by: columns by which the rows of a file are sorted: `"sold_at"`, `"amount desc"`.
            key: the columns that identify a row. A row replaces the one with its key; a row that
                has nothing but its key, and `global_position`, deletes that one. Of several rows
                of a step with one key, the one with the greatest `global_position` counts.
            mode: `append`; `upsert`, if there is a key; or `overwrite`, which replaces the
                partitions that a step has rows for, or all of a table without partitions.
            inputs: this and all that follow are as for `stream`.
            alts: see `stream`.
            tables: see `stream`.
            types: see `stream`.
            errors: see `stream`.
            max_consecutive_errors: see `stream`.
            limit: see `stream`.
            name: see `stream`.
        """
        where = _caller(2)
        try:
            lake = lake_table(table, partition_by=partition_by, sort_by=sort_by, key=key, mode=mode)
        except ValidationError as error:
            raise GraphError(str(error), where) from None
        return self._declare(
            "table", name, inputs=inputs, alts=alts, tables=tables, types=types, errors=errors,
            max_consecutive_errors=max_consecutive_errors, limit=limit, lake=lake,
        )  # fmt: skip

    def archive(
        self,
        category: str,
        *,
        older_than: str | Duration,
        every: str | Duration = "1h",
        name: str | None = None,
    ) -> None:
        """Declare that old messages of a category are moved to the archive, as `archive` does.

        A run begins with it once the pipeline's readers of the category have caught up, and goes on
        with it every so often; `run_until_idle` and `run_once` do it once. Messages that a consumer
        has not read stay where they are until it has: the status says who.

        Args:
            category: the one whose messages are moved.
            older_than: their age: `"90d"`, seconds, or a timedelta.
            every: how long a run waits before it does it again.
            name: of the processor; `archive_` and the category if not given.
        """
        where = _caller(2)
        check_queue(category, where)
        if not names.is_category(category) or category == "$all":
            raise GraphError(f"an archive takes one category, which {category} is not", where)
        rule = OldMessages(
            category, _age("older_than", older_than, where), _age("every", every, where)
        )
        called = name or re.sub(r"\W", "_", f"archive_{category}")
        self._declare("archive", called, archives=rule)(lambda: None)

    def _declare(self, kind: str, name: str | None, **parts: Any) -> Callable[[Function], Function]:
        """Return the decorator for a processor with these parts, as the caller has given them."""
        where = _caller(3)
        for part in ("inputs", "alts", "tables", "outputs"):
            parts[part] = _listed(parts.get(part, ()))
        parts["types"] = _types(parts.get("types", ()), parts["inputs"] or parts["alts"])

        def declare(function: Function) -> Function:
            called = str(name or getattr(function, "__name__", ""))
            if called in self.processors:
                first = self.processors[called].location
                raise GraphError(f"there are two processors named {called}: see {first}", where)
            if not re.fullmatch(r"\w+", called):
                problem = f"a processor cannot be named {called!r}: use letters and _"
                raise GraphError(problem, where)
            for argument in ("limit", "max_consecutive_errors"):
                count = parts.get(argument, 1)
                if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                    problem = f"{argument} must be a whole number from 1; got {shown(count)}"
                    raise GraphError(problem, where)
            self.processors[called] = Processor(kind, called, function, where, **parts)
            return function

        return declare


def _age(name: str, value: str | Duration, where: str) -> timedelta:
    """Return a duration: 90d, seconds or a timedelta."""
    try:
        if not isinstance(value, str):
            return timedelta(seconds=seconds(name, value, most=math.inf))
        found = parse_duration(value)
        if found is None:
            raise ValidationError(name, value, "a number with s, min, h, d or w, such as 90d")
        return found
    except (ValidationError, OverflowError) as error:
        raise GraphError(str(error), where) from None


def check_queue(name: str, where: str) -> None:
    """Refuse a name that is neither a category nor a stream."""
    try:
        check_text("queue", name)
        names.category(name)
    except ValidationError as error:
        raise GraphError(str(error), where) from None


def _listed(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str | Latest) else tuple(given)


def _types(given: Types, queues: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    if isinstance(given, Mapping):
        return {queue: _listed(types) for queue, types in given.items()}
    return {queue: _listed(given) for queue in queues} if given else {}


def _caller(depth: int) -> str:
    """Return file and line of the declaration, so many calls above."""
    frame = sys._getframe(depth)  # `inspect.stack()` reads the source of every frame
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
