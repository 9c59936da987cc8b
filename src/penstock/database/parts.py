"""The SQL files, the parts that they create, and whether these are still as they were installed.

A part is a table, index, view, type, function or trigger that the SQL files create. `penstock init`
records all of them in `penstock.installations.parts`. Comparing that record with the catalog finds
what was dropped or replaced since. Functions and triggers are recorded with a digest of what
PostgreSQL stores as it was written (bodies, settings, types by name), so a dump, a restore or a new
major version of PostgreSQL does not change it. Tables, indexes, views and types are recorded by
name alone: `init` cannot restore the definition of an existing one.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from penstock.database.edition import Edition, Installation
from penstock.database.operation import Operation, call
from penstock.errors import NotInstalled

logger = logging.getLogger("penstock")

_CREATE = re.compile(
    r"^ *create (?:or replace )?(?:unique |unlogged )?"
    r"(table|index|view|type|domain|function|procedure|trigger) (?:if not exists )?([\w.]+)",
    re.MULTILINE,
)
#: what precedes the name of a part, if not its kind
_PREFIXES = {"function": "", "procedure": "", "domain": "type "}


@dataclass(frozen=True, slots=True)
class Parts:
    """A digest of each part, by its name: as recorded at the installation, and as found now."""

    recorded: Mapping[str, str]
    found: Mapping[str, str]

    def of(self, edition: Edition) -> Parts:
        """Leave out the functions of `message_store` where they are Message DB's own."""
        if edition is Edition.PENSTOCK:
            return self
        ours = {name: one for name, one in self.recorded.items() if "message_store." not in name}
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


@cache
def digest(edition: Edition) -> str:
    """Return the digest of the SQL files that define an edition."""
    lines = [f"{name}\n{text}\n" for name, text in definitions(edition)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def definitions(edition: Edition) -> list[tuple[str, str]]:
    """Return name and text of the files that define an edition, in order."""
    folders = ["message_store", "penstock"] if edition is Edition.PENSTOCK else ["penstock"]
    return [
        (f"{folder}/{name}.sql", text) for folder in folders for name, text in _files_in(folder)
    ]


def upgrades() -> list[tuple[str, str]]:
    """Return name and text of the upgrades from all versions, in order."""
    return _files_in("upgrades")


@cache
def _files_in(folder: str) -> list[tuple[str, str]]:
    return sorted(
        (file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in (files("penstock.database") / "sql" / folder).iterdir()
        if file.name.endswith(".sql")
    )


def created_by(texts: Iterable[str]) -> set[str]:
    """Return the names of the parts that SQL files create; functions without their arguments."""
    created = [part for text in texts for part in _CREATE.findall(text)]
    return {_PREFIXES.get(kind, f"{kind} ") + name for kind, name in created}


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


def check_parts(installation: Installation, parts: Parts, where: str) -> None:
    """Refuse an installation that lacks a part, and warn of one that differs from this package's.

    A missing index is a warning: most calls work without it, though slowly.
    """
    if missing := [name for name in parts.missing if not name.startswith("index ")]:
        raise NotInstalled(
            f"{where} lacks {listed(missing)}, dropped since it was installed: "
            "run `penstock init` to restore it"
        )
    if parts.missing:
        logger.warning(
            "%s lacks %s; run `penstock init` to restore it", where, listed(parts.missing)
        )
    if parts.replaced:
        logger.warning(
            "%s: %s changed since `penstock init` installed it; run it again to restore it",
            where,
            listed(parts.replaced),
        )
    if installation.digest != digest(installation.edition):
        logger.warning(
            "%s has the SQL of another build of version %s than this package's; "
            "`penstock init` replaces it",
            where,
            installation.version,
        )


def listed(names: Sequence[str]) -> str:
    """Return the names for a message: the first three, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
