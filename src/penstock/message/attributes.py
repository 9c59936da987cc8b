"""The attributes of a typed message's class: their types and defaults, and which are indexed.

msgspec checks the values, against a struct with the same attributes. What could never work is
refused where the class is defined, and not where its first message is made or read.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec

from penstock.errors import ValidationError

_INDEXABLE = (str, int, bool, UUID, date, Decimal, enum.Enum)  # a datetime is a date


def payload_of(
    class_name: str, attributes: Iterable[Field[Any]], hints: Mapping[str, Any]
) -> type[msgspec.Struct]:
    """Return a struct with the same attributes, which msgspec checks values against."""
    fields = [
        (one.name, hints[one.name], _default(class_name, one, hints[one.name]))
        for one in attributes
    ]
    payload = msgspec.defstruct(class_name, fields, kw_only=True)
    try:
        msgspec.json.Decoder(payload)
    except TypeError as error:  # such as two types that look alike in JSON
        expected = f"of types that JSON tells apart: {error}"
        raise ValidationError(
            f"attributes of {class_name}", {name: hint for name, hint, _ in fields}, expected
        ) from None
    return payload


def _default(class_name: str, attribute: Field[Any], hint: Any) -> Any:
    """Return msgspec's form of a default. An attribute that may be None may be missing, too."""
    choices = get_args(_unwrapped(hint))
    may_be_none = None in choices or types.NoneType in choices
    if not has_default(attribute):
        return msgspec.field(default=None) if may_be_none else msgspec.field()

    factory = attribute.default_factory
    default = attribute.default if factory is MISSING else factory()
    name = f"the default of {class_name}.{attribute.name}"
    if may_be_none and default is not None:
        raise ValidationError(name, default, "None, which it may be, and which means absent")
    try:
        default = msgspec.convert(default, hint)
    except msgspec.ValidationError as error:
        raise ValidationError(name, default, f"valid: {error}") from None
    if factory is MISSING:
        return msgspec.field(default=default)
    return msgspec.field(default_factory=factory)


def has_default(attribute: Field[Any]) -> bool:
    """Whether a message may be made without the attribute."""
    return attribute.default is not MISSING or attribute.default_factory is not MISSING


def signature(attributes: Iterable[Field[Any]], hints: Mapping[str, Any]) -> inspect.Signature:
    """Return how a message is made, for `help` and for editors."""

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
    """Return what an attribute is when it is there."""
    if get_origin(hint) in (Union, types.UnionType):
        others = tuple(one for one in get_args(hint) if one is not types.NoneType)
        return Union[others]  # noqa: UP007 - which are not known here
    return hint
