"""What a database holds: our installation, a genuine Message DB, or ours on a genuine Message DB.

| edition | `message_store` functions | `penstock` schema |
|---|---|---|
| PENSTOCK | ours | yes |
| ON_MESSAGE_DB | genuine Message DB's | yes: watermark, triggers and all that builds on them |
| GENUINE | genuine Message DB's | no: only Message DB's own operations work |

The edition is read from the functions themselves: Message DB's own scripts may have replaced ours
since `penstock init` ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from penstock.database.operation import Operation, call, only_value
from penstock.errors import IncompatibleVersion, NotInstalled

#: the version of the schema that this package installs; rises with each release that changes it
SCHEMA_VERSION = 3
#: the version of the oldest client that still works on this schema
OLDEST_CLIENT = 3
OLDEST_POSTGRESQL = 15


class Edition(Enum):
    """What is installed: Penstock, Penstock on a genuine Message DB, or that alone."""

    PENSTOCK = "penstock"
    ON_MESSAGE_DB = "message-db"
    GENUINE = "genuine"

    @property
    def has_watermark(self) -> bool:
        """Whether whole-log reads are complete here."""
        return self is not Edition.GENUINE


@dataclass(frozen=True, slots=True)
class Found:
    """What a database holds before anything is done to it."""

    server_version: int
    has_message_store: bool
    has_penstock: bool
    #: whether the functions of `message_store` are ours
    has_our_functions: bool
    #: whether functions of `penstock` were dropped with a type that Message DB's installer creates
    #: again, or triggers of the log were dropped or disabled
    lacks_parts: bool

    @property
    def edition(self) -> Edition:
        """The edition of the database."""
        if not self.has_penstock:
            return Edition.GENUINE
        return Edition.PENSTOCK if self.has_our_functions else Edition.ON_MESSAGE_DB


@dataclass(frozen=True, slots=True)
class Installation:
    """The newest entry of `penstock.installations`."""

    version: int
    oldest_client: int
    digest: str
    edition: Edition
    #: the upgrade files that are done; version 1 did not record them
    upgrades: frozenset[str] = frozenset()


def find() -> Operation[Found]:
    """Return what the database holds."""
    return call(
        "find",
        """
        select current_setting('server_version_num')::int,
          to_regprocedure('message_store.message_store_version()') is not null,
          to_regclass('penstock.installations') is not null,
          exists (
            select from pg_proc p
            where p.oid = to_regproc('message_store.get_category_messages')
              and strpos(p.prosrc, 'penstock.get_category_messages') > 0
          ),
          to_regclass('penstock.installations') is not null and (
            to_regproc('penstock.get_category_messages') is null
            or (
              select 6 > count(*) filter (where (t.tgname, t.tgenabled) in (
                  ('penstock_announce', 'A'), ('penstock_refuse_unannounced_position', 'A'),
                  ('penstock_announce_applied', 'R'), ('penstock_place_applied', 'R'),
                  ('penstock_renew_incarnation', 'A'), ('penstock_forget_log', 'A')))
                -- those of the attribute index, once a type is declared
                or bool_or(t.tgname ~ '^penstock_(index|forget)_(attributes|applied)$')
                  and 4 <> count(*) filter (where (t.tgname, t.tgenabled) in (
                    ('penstock_index_attributes', 'A'), ('penstock_forget_attributes', 'A'),
                    ('penstock_index_applied', 'R'), ('penstock_forget_applied', 'R')))
              from pg_trigger t where t.tgrelid = to_regclass('message_store.messages')
            )
          )
        """,
        (),
        lambda rows: Found(*rows[0]),
    )


def last_installation() -> Operation[Installation | None]:
    """Return the last installation, or None."""
    return call(
        "last_installation",
        # as JSON, since version 1 has no column upgrades
        "select to_jsonb(i) - 'parts' from penstock.installations i order by i.id desc limit 1",
        (),
        lambda rows: msgspec.convert(rows[0][0], Installation) if rows else None,
    )


def message_store_version() -> Operation[str]:
    """Return the version of Message DB whose interface the database has."""
    return call(
        "message_store_version", "select message_store.message_store_version()", (), only_value
    )


def check_server(found: Found, where: str) -> None:
    """Refuse a server that is too old."""
    if found.server_version < OLDEST_POSTGRESQL * 10_000:
        raise IncompatibleVersion(
            f"{where} runs PostgreSQL {found.server_version // 10_000}; "
            f"Penstock needs {OLDEST_POSTGRESQL} or newer"
        )


def check_found(found: Found, where: str) -> None:
    """Refuse a server that is too old, or a database without a working message store."""
    check_server(found, where)
    if not found.has_message_store:
        raise NotInstalled(
            f"{where} holds no message store: run `penstock init` with PENSTOCK_URL set to it, "
            "or call penstock.install()"
        )
    if found.lacks_parts or (found.has_our_functions and not found.has_penstock):
        raise NotInstalled(
            f"{where} lacks a part of Penstock, as after Message DB's installer, `drop schema` or "
            "`disable trigger`: run `penstock init` to restore it"
        )


def check_message_db(version: str, where: str) -> None:
    """Refuse a Message DB whose interface this client does not support."""
    numbers = [int(part) for part in version.split(".") if part.isdigit()]
    if numbers[:1] != [1] or numbers[1:2] < [3]:
        raise IncompatibleVersion(
            f"{where} holds Message DB {version}; Penstock works with 1.3 and later 1.x"
        )


def check_installation(installation: Installation, where: str) -> None:
    """Refuse an installation that is older than this client, or too new for it."""
    if installation.version < SCHEMA_VERSION:
        raise IncompatibleVersion(
            f"{where} has schema version {installation.version}, and this client needs "
            f"{SCHEMA_VERSION}: run `penstock init` to upgrade it"
        )
    if installation.oldest_client > SCHEMA_VERSION:
        raise IncompatibleVersion(
            f"{where} has schema version {installation.version}, which needs a client of version "
            f"{installation.oldest_client}, and this client has {SCHEMA_VERSION}: "
            "upgrade the Python package penstock-log"
        )
