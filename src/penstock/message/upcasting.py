"""Bringing the data of older schema versions up to date, version by version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import ValidationError
from penstock.message import RecordedMessage, check_text

#: makes the data of the next schema version out of an older one's
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def up_to_date(
    message: RecordedMessage,
    class_name: str,
    schema_version: str | None,
    upcasters: Mapping[str | None, Upcaster],
) -> dict[str, Any]:
    """Return a message's data as this schema version has it."""
    data, version = dict(message.data), message.schema_version
    if version == schema_version:
        return data
    older = list(upcasters)
    if version not in older:
        raise LookupError(
            f"{class_name} is of version {schema_version} and has no upcaster for version {version}"
        )
    for step in older[older.index(version) :]:
        data = upcasters[step](data)
    return data


def checked_upcasters(
    upcasters: Mapping[str | None, Upcaster], schema_version: str | None
) -> dict[str | None, Upcaster]:
    """Refuse upcasters in an order in which some of them would never be used."""
    if not isinstance(upcasters, Mapping):
        raise ValidationError("upcasters", upcasters, "functions by the versions that they take")
    for version, upcaster in upcasters.items():
        if version is not None:
            check_text("upcasters", version)
        if not callable(upcaster):
            raise ValidationError(f"the upcaster of version {version}", upcaster, "a function")
    versions = [*upcasters, schema_version]
    numbered = [int(one) for one in versions if one is not None and one.isdecimal()]
    if len({*versions}) < len(versions) or None in versions[1:] or numbered != sorted(numbered):
        raise ValidationError(
            "upcasters", versions[:-1], f"older versions than {schema_version}, the oldest first"
        )
    return dict(upcasters)
