"""The schema of a typed message class: attributes, their types and defaults, and older versions.

msgspec checks values against a struct with the same attributes. An invalid schema is refused when
the class is defined, not when its first message is created or read.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec

from penstock.errors import ValidationError
from penstock.message.message import RecordedMessage, check_text

_INDEXABLE = (str, int, bool, UUID, date, Decimal, enum.Enum)  # a datetime is a date


def payload_of(
    class_name: str, attributes: Iterable[Field[Any]], hints: Mapping[str, Any]
) -> type[msgspec.Struct]:
    """Return a struct with the same attributes, for msgspec."""
    fields = [
        (one.name, hints[one.name], _default(class_name, one, hints[one.name]))
        for one in attributes
    ]
    payload = msgspec.defstruct(class_name, fields, kw_only=True)
    try:
        msgspec.json.Decoder(payload)
    except TypeError as error:  # such as two types with the same form in JSON
        expected = f"of types that differ in JSON: {error}"
        raise ValidationError(
            f"attributes of {class_name}", {name: hint for name, hint, _ in fields}, expected
        ) from None
    return payload


def _default(class_name: str, attribute: Field[Any], hint: Any) -> Any:
    """Return the default as msgspec declares it. An optional attribute defaults to None."""
    choices = get_args(_unwrapped(hint))
    may_be_none = None in choices or types.NoneType in choices
    if not has_default(attribute):
        return msgspec.field(default=None) if may_be_none else msgspec.field()

    factory = attribute.default_factory
    default = attribute.default if factory is MISSING else factory()
    name = f"the default of {class_name}.{attribute.name}"
    if may_be_none and default is not None:
        raise ValidationError(name, default, "None, as for every optional attribute")
    try:
        default = msgspec.convert(default, hint)
    except msgspec.ValidationError as error:
        raise ValidationError(name, default, f"valid: {error}") from None
    if factory is MISSING:
        return msgspec.field(default=default)
    return msgspec.field(default_factory=factory)


def has_default(attribute: Field[Any]) -> bool:
    """Whether a message can be created without the attribute."""
    return attribute.default is not MISSING or attribute.default_factory is not MISSING


def signature(attributes: Iterable[Field[Any]], hints: Mapping[str, Any]) -> inspect.Signature:
    """Return the signature of the constructor, for `help` and editors."""

    def default(one: Field[Any]) -> Any:
        if not has_default(one):
            return inspect.Parameter.empty
        return ... if one.default is MISSING else one.default

    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(one.name, kind, annotation=hints[one.name], default=default(one))
            for one in attributes
        ]
    )


def is_indexable(hint: Any) -> bool:
    """Whether messages can be found by an attribute of this type."""
    hint = _unwrapped(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return all(one is types.NoneType or is_indexable(one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return all(one is None or isinstance(one, str | int) for one in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, _INDEXABLE)


def _unwrapped(hint: Any) -> Any:
    """Return the type behind `Annotated`, `Final`, a `NewType` and a type alias."""
    while True:
        if get_origin(hint) in (Annotated, Final):
            hint = get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif hasattr(hint, "__value__"):  # `type Name = ...`, of Python 3.12
            hint = hint.__value__
        else:
            return hint


def without_none(hint: Any) -> Any:
    """Return the type of an attribute that is present."""
    if get_origin(hint) in (Union, types.UnionType):
        others = tuple(one for one in get_args(hint) if one is not types.NoneType)
        return Union[others]  # noqa: UP007 - a tuple of types
    return hint


#: converts the data of one schema version to the next
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def up_to_date(
    message: RecordedMessage,
    class_name: str,
    schema_version: str | None,
    upcasters: Mapping[str | None, Upcaster],
) -> dict[str, Any]:
    """Return a message's data, converted to this schema version."""
    data, version = dict(message.data), message.schema_version
    if version == schema_version:
        return data
    older = list(upcasters)
    if version not in older:
        raise LookupError(
            f"{class_name} has version {schema_version} and no upcaster for version {version}"
        )
    for step in older[older.index(version) :]:
        data = upcasters[step](data)
    return data


def checked_upcasters(
    upcasters: Mapping[str | None, Upcaster], schema_version: str | None
) -> dict[str | None, Upcaster]:
    """Return the upcasters, if each is a function and they are in the order of their versions."""
    if not isinstance(upcasters, Mapping):
        raise ValidationError("upcasters", upcasters, "a mapping from schema version to function")
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
