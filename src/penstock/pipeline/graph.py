"""A pipeline's graph: its declarations, as frozen values, apart from what runs them.

A processor reads categories or streams of the log, its queues. A source brings messages in, a
stream turns messages into others, a sink takes them elsewhere, a projection keeps a table of
current states. Each declaration has its file and line, so that a mistake is reported there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import GraphError, ValidationError, shown
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
class Processor:
    """A declared source, stream, sink or projection."""

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

    def source(self, *, output: Names, name: str | None = None) -> Callable[[Function], Function]:
        """Declare a function that brings messages in: it returns a frame of messages.

        It runs once. With a parameter `delivery` it can continue where it stopped: it gets
        `delivery.cursor`, what it passed to `delivery.advance(cursor)` the last time, and runs
        again until it returns None.
        """
        return self._declare("source", name, outputs=output)

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
    frame = inspect.stack()[depth]
    return f"{Path(frame.filename).name}:{frame.lineno}"
