"""The parts of an installation, and whether they are still as they were installed.

A part is a table, index, view, type, function or trigger that the SQL files create. `penstock init`
records all of them in `penstock.installations.parts`. Comparing that record with the catalog finds
what was dropped or replaced since. Functions and triggers are recorded with a digest of what
PostgreSQL stores as it was written (bodies, settings, types by name), so a dump, a restore or a new
major version of PostgreSQL does not change it. Tables, indexes, views and types are recorded by
name alone: `init` cannot restore the definition of an existing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.database.edition import Edition
from penstock.database.operation import Operation, call

_CREATE = re.compile(
    r"^ *create (?:or replace )?(?:unique |unlogged )?"
    r"(table|index|view|type|domain|function|procedure|trigger) (?:if not exists )?([\w.]+)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """A digest of each part, by its name: as recorded at the installation, and as found now."""

    recorded: Mapping[str, str]
    found: Mapping[str, str]

    def of(self, edition: Edition) -> Parts:
        """Leave out the functions of `message_store` where they are Message DB's own."""
        if edition is Edition.PENSTOCK:
            return self
        ours = {
            name: digest for name, digest in self.recorded.items() if "message_store." not in name
        }
        return Parts(ours, self.found)

    @property
    def missing(self) -> list[str]:
        """The parts that were installed and do not exist now."""
        return sorted(self.recorded.keys() - self.found.keys())

    @property
    def replaced(self) -> list[str]:
        """The parts that exist and differ from what was installed."""
        return sorted(
            name for name, digest in self.recorded.items() if self.found.get(name, digest) != digest
        )


def created_by(texts: Iterable[str]) -> set[str]:
    """Return the names of the parts that SQL files create; functions without their arguments."""
    return {_part_name(*created) for text in texts for created in _CREATE.findall(text)}


def _part_name(kind: str, name: str) -> str:
    if kind in ("function", "procedure"):
        return name
    return f"{'type' if kind == 'domain' else kind} {name}"


def parts() -> Operation[Parts]:
    """Read the record and the catalog in one snapshot. A disabled trigger counts as replaced."""
    return call(
        "parts",
        """
        with ours as (
          select n.oid, n.nspname as name from pg_catalog.pg_namespace n
          where n.nspname in ('message_store', 'penstock')
        ), found as (
          -- functions. Types are named without these schemas, which may be in the search path
          select concat(n.name, '.', p.proname, '(', regexp_replace(
              oidvectortypes(p.proargtypes), '(message_store|penstock)[.]', '', 'g'), ')') as name,
            md5(concat_ws('|', p.prosrc, regexp_replace(
              format_type(p.prorettype, null), '(message_store|penstock)[.]', '', 'g'),
              p.proretset, p.prosecdef, p.provolatile, p.proisstrict, p.proparallel, p.proargnames,
              p.proconfig)) as digest
          from ours n join pg_catalog.pg_proc p on p.pronamespace = n.oid
          union all
          -- the triggers of the log that call Penstock's functions
          select 'trigger ' || t.tgname, md5(concat_ws('|', t.tgenabled, t.tgtype, p.proname))
          from pg_catalog.pg_trigger t
          join pg_catalog.pg_proc p on p.oid = t.tgfoid
          where t.tgrelid = to_regclass('message_store.messages')
            and p.pronamespace = to_regnamespace('penstock')
          union all
          select case c.relkind when 'r' then concat('table ', n.name, '.', c.relname)
              when 'v' then concat('view ', n.name, '.', c.relname)
              else 'index ' || c.relname end, ''
          from ours n join pg_catalog.pg_class c on c.relnamespace = n.oid
          where c.relkind in ('r', 'v', 'i')
          union all
          select concat('type ', n.name, '.', t.typname), ''
          from ours n join pg_catalog.pg_type t on t.typnamespace = n.oid
          left join pg_catalog.pg_class c on c.oid = t.typrelid
          where t.typtype = 'd' or c.relkind = 'c'  -- not the row types of tables
        )
        select
          -- as JSON, since version 1 has no column parts
          coalesce((select to_jsonb(i) -> 'parts' from penstock.installations i
            order by i.id desc limit 1), '{}'),
          (select jsonb_object_agg(f.name, f.digest) from found f)
        """,
        (),
        lambda rows: Parts(*rows[0]),
    )
