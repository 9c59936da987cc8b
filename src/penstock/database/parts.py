"""The functions and triggers of an installation, and whether they are still as they were installed.

`penstock init` records a digest of each in `penstock.installations.parts`. Comparing that record
with the catalog finds what somebody dropped or replaced by hand. The digests cover what PostgreSQL
stores as it was written (bodies, settings, types by name), so a dump, a restore or a new major
version of PostgreSQL does not change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.database.edition import Edition
from penstock.database.operation import Operation, call


@dataclass(frozen=True, slots=True)
class Parts:
    """A digest of each function and trigger, by its name: as recorded last, and as found now."""

    recorded: Mapping[str, str]
    found: Mapping[str, str]

    def of(self, edition: Edition) -> Parts:
        """Leave out functions that are not ours, beside a genuine Message DB."""
        if edition is Edition.PENSTOCK:
            return self
        ours = {
            name: digest
            for name, digest in self.recorded.items()
            if not name.startswith("message_store.")
        }
        return Parts(ours, self.found)

    @property
    def missing(self) -> list[str]:
        """What was installed and is not there now."""
        return sorted(self.recorded.keys() - self.found.keys())

    @property
    def replaced(self) -> list[str]:
        """What is there and differs from what was installed."""
        return sorted(
            name for name, digest in self.recorded.items() if self.found.get(name, digest) != digest
        )


def parts() -> Operation[Parts]:
    """Look up both in one snapshot. A trigger that was switched off counts as replaced."""
    return call(
        "parts",
        """
        with installed as (
          -- the functions in both schemas, and the triggers on the log that call Penstock's. Types
          -- are named without these schemas, since the search path may have them
          select concat(n.nspname, '.', p.proname, '(', regexp_replace(
              oidvectortypes(p.proargtypes), '(message_store|penstock)[.]', '', 'g'), ')') as name,
            md5(concat_ws('|', p.prosrc, regexp_replace(
              format_type(p.prorettype, null), '(message_store|penstock)[.]', '', 'g'),
              p.proretset, p.prosecdef, p.provolatile, p.proisstrict, p.proparallel, p.proargnames,
              p.proconfig)) as digest
          from pg_catalog.pg_namespace n
          join pg_catalog.pg_proc p on p.pronamespace = n.oid
          where n.nspname in ('message_store', 'penstock')
          union all
          select 'trigger ' || t.tgname, md5(concat_ws('|', t.tgenabled, t.tgtype, p.proname))
          from pg_catalog.pg_trigger t
          join pg_catalog.pg_proc p on p.oid = t.tgfoid
          where t.tgrelid = to_regclass('message_store.messages')
            and p.pronamespace = to_regnamespace('penstock')
        )
        select
          -- as JSON, since version 1 has no column parts
          coalesce((select to_jsonb(i) -> 'parts' from penstock.installations i
            order by i.id desc limit 1), '{}'),
          (select jsonb_object_agg(i.name, i.digest) from installed i)
        """,
        (),
        lambda rows: Parts(*rows[0]),
    )
