"""The settings of a store: one frozen value, from arguments and the environment.

An argument overrides the environment variable of the same name (`PENSTOCK_` and the field in upper
case; `PENSTOCK_URL` for `database_url`, `PENSTOCK_REPLICA_URL` for `replica`), which overrides the
default. If an address is given as an argument, no part of it comes from the environment. Without an
address, the embedded server in `folder` is used. A password is never shown.
"""

from __future__ import annotations

import json
import os
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.errors import ValidationError

_CONNECTION_FIELDS = (
    "host", "port", "dbname", "user", "password",
    "sslmode", "sslrootcert", "sslcert", "sslkey",
)  # fmt: skip

LONGEST_LAG = 3_600.0  # seconds
LONGEST_WRITE = 2_000_000.0  # seconds; the server's timeouts have about this limit
#: what a standby has in common with its primary
_OF_BOTH = ("dbname", "user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey")
#: the variables whose names differ from those of their fields
_VARIABLES = {"database_url": "PENSTOCK_URL", "replica": "PENSTOCK_REPLICA_URL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a store. `Settings.load` reads arguments and the environment."""

    #: `postgresql://…` or libpq's `key=value` form; None for the embedded server
    database_url: str | None = field(default=None, repr=False)
    #: the data folder of the embedded server
    folder: Path = Path(".penstock")

    host: str | None = None
    port: int | None = None
    dbname: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sslmode: str | None = None
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None

    #: fixed: the schema of Message DB's functions
    schema_name: str = "message_store"
    default_batch_size: int = 1000
    #: the maximum duration of a statement
    command_timeout_ms: int = 30_000
    #: the maximum duration of a transaction, unless it sets its own
    transaction_timeout_ms: int = 30_000
    #: the maximum duration of a transaction that may write, whatever its own timeout
    max_write_seconds: float | None = None
    connect_timeout_ms: int = 10_000
    session_timezone: str = "UTC"
    application_name: str = "penstock"

    pool_min_size: int = 1
    pool_max_size: int = 10
    #: the maximum time to wait for a free connection
    pool_timeout_ms: int = 30_000

    #: allow `condition`, which is executed as SQL on the server
    sql_condition: bool = False
    #: make the server refuse all writes
    read_only: bool = False
    #: disable behind a connection pooler that does not support prepared statements
    prepared_statements: bool = True
    #: wake what waits for messages when they are written; otherwise it polls
    wake_up: bool = True
    #: the number of boundaries whose states `decide` keeps; 0 to keep none
    decider_cache_size: int = 1000

    #: send concurrent writes of this process as one batch
    coalesce: bool = True
    #: how many of them may wait for the batch before theirs
    max_queued_writes: int = 10_000

    #: the address of a streaming standby, on which categories are read
    replica: str | None = field(default=None, repr=False)
    #: how far behind the replica may be, in seconds: a read waits so long for it
    max_replica_lag: float = 1.0
    #: read the primary if the replica is further behind or unreachable, and do not raise
    replica_fallback: bool = True

    #: where the files of Iceberg tables are: `file://…`, `s3://…`, `gs://…` or `abfss://…`
    warehouse: str | None = None
    #: how to sign in there, by the names of pyiceberg: `s3.endpoint`, `s3.access-key-id`, …
    lake_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        """Refuse invalid values before any connection is made."""
        if not isinstance(self.folder, str | Path) or not str(self.folder):
            raise ValidationError("folder", self.folder, "a folder's path")
        object.__setattr__(self, "folder", Path(self.folder))
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, timedelta) and str(one.type).startswith("float"):
                value = value.total_seconds()
                object.__setattr__(self, one.name, value)
            _check_type(one.name, str(one.type), value)
        _check_timezone(self.session_timezone)
        _check_tls("sslmode", self.sslmode)
        if self.schema_name != "message_store":
            raise ValidationError(
                "schema_name", self.schema_name, "'message_store', where Message DB's functions are"
            )
        if self.pool_max_size < self.pool_min_size:
            expected = f"at least pool_min_size, {self.pool_min_size}"
            raise ValidationError("pool_max_size", self.pool_max_size, expected)
        if self.database_url is not None:
            check_url(self.database_url)
        if self.replica is not None:
            check_url(self.replica, "replica")
            if self.embedded:
                expected = "given with the address of its primary: the embedded server has none"
                raise ValidationError("replica", _without_secrets(self.replica), expected)
        _check_warehouse(self.warehouse)
        _check_options(self.lake_options)

    @classmethod
    def load(cls, database_url: str | Settings | None = None, /, **options: Any) -> Settings:
        """Return settings from arguments and the environment, or given settings with changes."""
        known = {one.name: one for one in fields(cls)}
        for name in options:
            if name not in known:
                raise ValidationError("option", name, f"one of {', '.join(sorted(known))}")
        if isinstance(database_url, Settings):
            return replace(database_url, **options)
        if database_url is not None:
            options["database_url"] = database_url
        found = _from_environment(os.environ, known)
        if any(options.get(name) for name in ("database_url", "host", "dbname", "folder")):
            for name in ("database_url", "replica", *_CONNECTION_FIELDS):
                found.pop(name, None)  # all parts of the address come from one place
        return cls(**{**found, **options})

    @property
    def embedded(self) -> bool:
        """Whether the embedded server is used, since no server is named."""
        return not (self.database_url or self.host or self.dbname)

    def of_replica(self) -> Settings:
        """Return the settings of the replica: what its address leaves out is the primary's."""
        given, primary = conninfo_to_dict(self.replica or ""), conninfo_to_dict(self.conninfo())
        same = {name: primary[name] for name in _OF_BOTH if name in primary and name not in given}
        none: dict[str, Any] = dict.fromkeys(_CONNECTION_FIELDS)
        # a read that waits longer than this for a connection goes to the primary
        patience = max(1, min(self.pool_timeout_ms, int(self.max_replica_lag * 1000)))
        return replace(
            self,
            **none,
            database_url=make_conninfo(self.replica or "", **same),
            replica=None,
            pool_timeout_ms=patience,
            wake_up=False,  # a standby refuses LISTEN and NOTIFY; the primary notifies
        )

    def conninfo(self) -> str:
        """Return libpq's connection string, password included."""
        url = self.database_url or ""
        parts = {name: getattr(self, name) for name in _CONNECTION_FIELDS}
        parts["client_encoding"] = "UTF8"  # overrides the database's and PGCLIENTENCODING
        in_url = conninfo_to_dict(url)  # overrides a default
        if "application_name" not in in_url or not self._is_default("application_name"):
            parts["application_name"] = self.application_name
        if "connect_timeout" not in in_url or not self._is_default("connect_timeout_ms"):
            parts["connect_timeout"] = max(2, self.connect_timeout_ms // 1000)
        return make_conninfo(url, **{name: one for name, one in parts.items() if one is not None})

    def _is_default(self, name: str) -> bool:
        return any(f.name == name and getattr(self, name) == f.default for f in fields(self))

    def where(self) -> str:
        """Return host, port and database for an error message: never a password."""
        parts = conninfo_to_dict(self.conninfo())
        host = parts.get("host") or parts.get("hostaddr") or "localhost"
        return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"


#: credentials are in options, never in the URL
_WAREHOUSE = re.compile(r"(file:///|(s3|gs|abfss)://[^/?#:]+)[^?#:]*")


def _check_warehouse(warehouse: str | None) -> None:
    expected = "a URL such as file:///data/lake, s3://bucket/lake, gs://… or abfss://…"
    if warehouse is not None and not _WAREHOUSE.fullmatch(str(warehouse)):
        raise ValidationError("warehouse", _without_secrets(str(warehouse)), expected)


def _check_options(options: object) -> None:
    expected = "a mapping of pyiceberg's names to text, such as {'s3.region': 'eu-central-1'}"
    if not isinstance(options, Mapping):
        raise ValidationError("lake_options", type(options).__name__, expected)
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValidationError("lake_options", f"{name} = ***", expected)


def check_url(url: str, name: str = "database_url") -> None:
    """Refuse a URL that libpq cannot parse, without showing a password."""
    expected = "postgresql://user:password@host:port/database, or libpq's key=value form"
    if not isinstance(url, str) or "\0" in url or not url.strip():
        raise ValidationError(name, _without_secrets(str(url)), expected)
    if "://" in url and not url.startswith(("postgresql://", "postgres://")):
        raise ValidationError(name, _without_secrets(url), expected)
    try:
        parts = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        raise ValidationError(name, _without_secrets(url), expected) from None
    if not re.fullmatch(r"[\d,]*", str(parts.get("port") or "")):
        raise ValidationError(name, _without_secrets(url), expected)
    _check_tls(f"sslmode in {name}", parts.get("sslmode"))
    if re.match(r"\w+://[^@?]*(/[^@?]*@|@[^?]*@)", url):  # libpq would parse it as host or database
        expected = "percent-encoded: in a password, @ is %40 and / is %2F"
        raise ValidationError(name, _without_secrets(url), expected)


def _without_secrets(url: str) -> str:
    """Return an invalid URL without any part that may be a password."""
    if "://" not in url and "=" in url:
        return " ".join(f"{key}=***" for key in re.findall(r"(\w+)\s*=", url))
    url = re.sub(r"^(\w+:?//)?([^:@]*:).*@", r"\1\2***@", url, flags=re.DOTALL)
    # without an @, what libpq parses as a port may be a password
    url = re.sub(r":(?!//|\d+(?:[,/?#]|$))[^/?#@]*", ":***", url)
    return re.sub(r"=[^&]*", "=***", url)


def redact(text: str) -> str:
    """Return `text` with possible passwords replaced by `***`."""
    text = re.sub(r"(://[^:/?#@]*:).*(@)", r"\1***\2", text)
    return re.sub(r"(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1***", text)


def _from_environment(environment: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in known.items():
        variable = _VARIABLES.get(name, f"PENSTOCK_{name.upper()}")
        if environment.get(variable):
            found[name] = _parsed(variable, environment[variable], str(one.type))
    return found


def _parsed(variable: str, text: str, type_name: str) -> Any:
    if type_name.startswith("int"):
        if not re.fullmatch(r"-?\d+", text):
            raise ValidationError(variable, text, "an integer")
        return int(text)
    if type_name.startswith("float"):
        if not re.fullmatch(r"\d+(\.\d+)?", text):
            raise ValidationError(variable, text, "a number of seconds")
        return float(text)
    if type_name == "bool":
        if text.lower() not in ("1", "true", "on", "yes", "0", "false", "off", "no"):
            raise ValidationError(variable, text, "on or off")
        return text.lower() in ("1", "true", "on", "yes")
    if type_name.startswith("Mapping"):
        try:
            return json.loads(text)
        except ValueError:  # it may have secrets
            raise ValidationError(variable, "***", "a JSON object of texts") from None
    return Path(text) if type_name == "Path" else text


def _check_type(name: str, type_name: str, value: object) -> None:
    """Refuse a value of the wrong type or outside its range."""
    if value is None and type_name.endswith("None"):
        return
    if type_name.startswith("int"):
        lowest = 0 if name in ("pool_min_size", "decider_cache_size") else 1
        highest = {"port": 65535}.get(name, 2**31 - 1)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValidationError(name, value, "an integer")
        if not lowest <= value <= highest:
            raise ValidationError(name, value, f"between {lowest} and {highest}")
    elif type_name.startswith("float"):
        least, most = (0.001, LONGEST_WRITE) if name == "max_write_seconds" else (0.0, LONGEST_LAG)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValidationError(name, value, "a number of seconds, or a timedelta")
        if not least <= value <= most:
            raise ValidationError(name, value, f"between {least:g} and {most:,.0f} seconds")
    elif type_name == "bool" and not isinstance(value, bool):
        raise ValidationError(name, value, "True or False")
    elif type_name.startswith("str") and name not in _VARIABLES and not _is_text(value):
        shown = "***" if name == "password" else value
        raise ValidationError(name, shown, "text without NUL characters")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not re.search(r"[\0\ud800-\udfff]", value)


def _check_tls(name: str, sslmode: object) -> None:
    known = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
    if sslmode is not None and sslmode not in known:
        raise ValidationError(name, sslmode, f"one of {', '.join(known)}")


def _check_timezone(name: str) -> None:
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        if name != "UTC":
            raise ValidationError("session_timezone", name, "a time zone such as 'UTC'") from None
