"""What to read: a category, a stream, or the messages that carry some attributes.

Each target numbers its messages along one axis, on which they are complete: the global position,
or within a single stream the position there. Offsets, ranges and partitions are numbers on that
axis. This module turns them into SQL. Values are quoted as literals, because COPY takes no
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from psycopg import sql

Attributes = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Target:
    """The messages to read. Exactly one of category, stream and attributes is given."""

    category: str | None = None
    stream: str | None = None
    attributes: Attributes = ()
    types: tuple[str, ...] = ()
    #: of the attributes, as JSON: known once the database has said which types declare them
    conditions: str | None = None
    #: the positions of the messages with the attributes that are archived: known to a task
    archived: tuple[int, ...] = ()
    #: how to sign in to the warehouse of the archive
    lake_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def name(self) -> str:
        """The stream, the category or `$all`; the whole log for attributes."""
        return self.stream or self.category or "$all"

    @property
    def label(self) -> str:
        """The target's name in an error message."""
        if self.attributes:
            return f"attributes {dict(self.attributes)}"
        return f"stream {self.stream}" if self.stream else f"category {self.category}"

    @property
    def before_first(self) -> int:
        """The number before that of the first message."""
        return -1 if self.stream else 0

    @property
    def axis(self) -> sql.SQL:
        """The column along which messages are numbered."""
        return sql.SQL("m.position") if self.stream else sql.SQL("m.global_position")

    @property
    def order(self) -> sql.SQL:
        """What to order by, so that rows come straight from the index."""
        if self.category and self.category != "$all":
            return sql.SQL("message_store.category(m.stream_name), m.global_position")
        return self.axis

    def at(self, position: int) -> sql.Composed:
        """Return the SQL condition for the message at a number."""
        condition = sql.SQL("{axis} = {position}").format(axis=self.axis, position=position)
        if self.stream:
            condition += sql.SQL(" and m.stream_name = {}").format(self.stream)
        elif self.category and self.category != "$all":
            condition += sql.SQL(" and message_store.category(m.stream_name) = {}").format(
                self.category
            )
        return condition

    def head(self) -> sql.Composed:
        """Return SQL for the number of the last message up to which the target is complete."""
        if self.stream:
            version = sql.SQL("select coalesce(message_store.stream_version({}), -1)")
            return version.format(self.stream)
        if self.attributes:
            return sql.SQL("select penstock.complete_to()").format()
        return sql.SQL("select penstock.category_head({})").format(self.category)

    def rows(self, after: int, until: int, *, filtered: bool = True) -> sql.Composed:
        """Return `from … where …` for the messages after one number and up to another."""
        rows = self._range().format(**vars(self), after=after, until=until)
        if filtered and self.types:
            rows += sql.SQL(" and m.type = any ({})").format(list(self.types))
        return rows

    def positions(self, after: int, until: int, *, filtered: bool = True) -> sql.Composed:
        """Return the same for their numbers alone; of attributes, also of archived messages."""
        if not self.attributes:
            return self.rows(after, until, filtered=filtered)
        found = sql.SQL(
            "from penstock.matching_positions({conditions}::jsonb, {after}) as m(global_position)"
            " where m.global_position <= {until}"
        )
        return found.format(conditions=self.conditions, after=after, until=until)

    def _range(self) -> sql.SQL:
        """Return the template of a range, which names fields of the target."""
        if self.stream:
            return sql.SQL(
                "from message_store.messages m where m.stream_name = {stream}"
                " and m.position > {after} and m.position <= {until}"
            )
        if self.attributes:
            return sql.SQL(
                "from penstock.matching_positions({conditions}::jsonb, {after}) as p(position)"
                " join message_store.messages m on m.global_position = p.position"
                " where p.position <= {until}"
            )
        if self.category == "$all":
            return sql.SQL(
                "from message_store.messages m"
                " where m.global_position > {after} and m.global_position <= {until}"
            )
        return sql.SQL(
            "from message_store.messages m"
            " where (message_store.category(m.stream_name), m.global_position)"
            " > ({category}, {after})"
            " and (message_store.category(m.stream_name), m.global_position)"
            " <= ({category}, {until})"
        )

    def with_conditions(self, declared: Sequence[tuple[str, list[str]]]) -> Target:
        """Return this target with a condition for each type that declares one of the attributes."""
        wanted = dict(self.attributes)
        conditions = [
            {"type": type, "attributes": {n: list(v) for n, v in wanted.items() if n in names}}
            for type, names in declared
        ]
        return replace(self, conditions=msgspec.json.encode(conditions).decode())
