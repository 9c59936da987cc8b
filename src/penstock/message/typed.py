"""Typed messages: one small class per message type.

    class UserJoinedCourse(TypedMessage, type="user.joined_course"):
        course_name: str
        user_id: str

A class declares the attributes of its messages. Attributes of a scalar type (str, int, bool, UUID,
date, datetime, Decimal, Enum, or an optional one of these) are indexed: conditions and guards can
use them. `unindexed` excludes some. None means absent.

A type has exactly one class in a process. Messages of older versions are converted when they are
read: `schema_version` is written to the metadata, and `upcasters` maps each older version, oldest
first, to a function that returns the data of the next version.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Self, TypeGuard, dataclass_transform, get_type_hints
from uuid import UUID

import msgspec

from penstock.errors import DecodingError, UnknownMessageType, ValidationError, first_line
from penstock.message import Message, RecordedMessage, as_uuid, check_text, checked_message, new_id
from penstock.message.conditions import QueryCondition, attribute_text, checked_condition
from penstock.message.schema import (
    Upcaster,
    checked_upcasters,
    has_default,
    is_indexable,
    payload_of,
    signature,
    up_to_date,
    without_none,
)

_PLAIN = (str, int, bool)
_registry: dict[str, type[TypedMessage]] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
class TypedMessage:
    """The base class of typed messages. Immutable; the constructor checks the values.

    A class may define `__post_init__` for further checks. It is not called for messages that are
    read.
    """

    #: the message type, such as "user.joined_course"
    message_type: ClassVar[str] = ""
    #: the names of all payload attributes, in the order of the class
    payload_attribute_names: ClassVar[tuple[str, ...]] = ()
    #: those that conditions and guards can use
    indexed_attribute_names: ClassVar[tuple[str, ...]] = ()
    #: the version that is written to the metadata, if any
    schema_version: ClassVar[str | None] = None
    _upcasters: ClassVar[Mapping[str | None, Upcaster]] = {}
    _payload: ClassVar[type[msgspec.Struct]]
    _hints: ClassVar[Mapping[str, Any]] = {}
    _required: ClassVar[frozenset[str]] = frozenset()
    _known: ClassVar[frozenset[str]] = frozenset()
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(
        cls,
        *,
        type: str,
        unindexed: Iterable[str] = (),
        schema_version: str | None = None,
        upcasters: Mapping[str | None, Upcaster] | None = None,
    ) -> None:
        """Define the class of a message type."""
        super().__init_subclass__()
        if isinstance(unindexed, str) or not isinstance(unindexed, Iterable):
            raise ValidationError("unindexed", unindexed, "a list of names")
        unindexed = tuple(unindexed)
        check_text("type", type)
        if schema_version is not None:
            check_text("schema_version", schema_version)
        if "-" in type:
            raise ValidationError("type", type, "a name without '-', since it is a category")
        dataclass(frozen=True, kw_only=True, init=False)(cls)
        hints = get_type_hints(cls, include_extras=True)
        own: tuple[Field[Any], ...] = fields(cls)  # type: ignore[arg-type]
        names = tuple(one.name for one in own)
        _check_names(cls, names, unindexed)
        cls.message_type = type
        cls.schema_version = schema_version
        cls._upcasters = checked_upcasters({} if upcasters is None else upcasters, schema_version)
        cls._hints = {name: without_none(hints[name]) for name in names}
        cls._payload = payload_of(cls.__name__, own, hints)
        cls._required = frozenset(one.name for one in own if not has_default(one))
        cls._known = frozenset(names)
        cls.__signature__ = signature(own, hints)
        cls.payload_attribute_names = names
        cls.indexed_attribute_names = tuple(
            name for name in names if name not in unindexed and is_indexable(hints[name])
        )
        _register(cls)

    def __init__(self, /, **attributes: Any) -> None:
        """Create a message with a new id. The values are checked against the annotations."""
        if not self._required <= attributes.keys() <= self._known:
            missing = ", ".join(sorted(self._required - attributes.keys()))
            unknown = ", ".join(sorted(attributes.keys() - self._known))
            expected = f"given {missing}" if missing else f"without {unknown}, which is unknown"
            raise ValidationError(type(self).__name__, attributes, expected)
        try:
            payload = msgspec.convert(attributes, self._payload)
        except msgspec.ValidationError as error:
            raise ValidationError(type(self).__name__, attributes, f"valid: {error}") from None
        self._fill(payload, new_id(), None)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values. A subclass may override it."""

    @property
    def message_id(self) -> UUID:
        """The id that the message will have in the log."""
        return self._message_id  # type: ignore[attr-defined, no-any-return]

    @property
    def message_metadata(self) -> dict[str, Any] | None:
        """A copy of the metadata that the message will have in the log."""
        metadata: dict[str, Any] | None = self.__dict__["_message_metadata"]
        return None if metadata is None else dict(metadata)

    def with_id(self, id: UUID | str) -> Self:
        """Return the same message with this id. Writing an id twice writes it once."""
        return self._copy(as_uuid(id), self.message_metadata)

    def with_metadata(self, **fields: Any) -> Self:
        """Return the same message, same id, with these metadata fields set."""
        return self._copy(self.message_id, {**(self.message_metadata or {}), **fields})

    def caused_by(self, cause: Message | RecordedMessage | TypedMessage) -> Self:
        """Return the same message with the cause's correlation, and the cause's id as causation."""
        if isinstance(cause, TypedMessage):
            cause = cause.to_message()
        elif not isinstance(cause, Message | RecordedMessage):
            raise ValidationError("cause", cause, "a message")
        return self.with_metadata(**(cause.follow(self.message_type).metadata or {}))

    def to_message(self) -> Message:
        """Return the message as it is written: attributes that are None are absent.

        Indexed attributes become str, int or bool, so that their text does not depend on the
        serializer.
        """
        own = self.__dict__
        data = {
            name: value for name in self.payload_attribute_names if (value := own[name]) is not None
        }
        for name in self.indexed_attribute_names:
            if type(data.get(name, "")) not in _PLAIN:
                data[name] = msgspec.to_builtins(data[name])
        metadata = own["_message_metadata"]
        if self.schema_version is not None:
            metadata = {**(metadata or {}), "schema_version": self.schema_version}
        return checked_message(self.message_type, data, metadata, own["_message_id"])

    @classmethod
    def to_conditions(cls, **attributes: object) -> list[QueryCondition]:
        """Return one condition for each of these attributes that the class has and indexes."""
        return [
            checked_condition(cls.message_type, name, cls.condition_text(name, value))
            for name in cls.indexed_attribute_names
            if (value := attributes.get(name)) is not None
        ]

    @classmethod
    def condition_text(cls, name: str, value: object) -> str:
        """Return the indexed text of an attribute with this value, or with this text as value."""
        hint = cls._hints[name]
        if hint is str and type(value) is str:
            return attribute_text(name, value)
        try:
            converted = msgspec.convert(value, hint, strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            expected = f"valid: {error}"
            raise ValidationError(f"{cls.__name__}.{name}", value, expected) from None
        return attribute_text(name, converted)

    @classmethod
    def from_recorded(cls, message: RecordedMessage) -> Self:
        """Return a recorded message as an instance of this class, converted to its version."""
        try:
            payload = msgspec.convert(
                up_to_date(message, cls.__name__, cls.schema_version, cls._upcasters),
                cls._payload,
                str_keys=True,
            )
        except Exception as error:  # an upcaster may raise anything
            raise DecodingError(
                message.stream_name, message.position, message.global_position, first_line(error)
            ) from error
        typed = object.__new__(cls)
        typed._fill(payload, message.id, message.metadata)
        return typed

    def _fill(self, payload: object, id: UUID, metadata: dict[str, Any] | None) -> None:
        """Set the values of this frozen instance."""
        own = self.__dict__
        for name in self.payload_attribute_names:
            own[name] = getattr(payload, name)
        own["_message_id"], own["_message_metadata"] = id, metadata

    def _copy(self, id: UUID, metadata: dict[str, Any] | None) -> Self:
        copy = object.__new__(type(self))
        copy._fill(self, id, metadata)
        return copy


def class_of(type: str) -> type[TypedMessage]:
    """Return the class of a message type, or raise `UnknownMessageType`."""
    if type not in _registry:
        raise UnknownMessageType(type, tuple(sorted(_registry)))
    return _registry[type]


def find_class(type: str) -> type[TypedMessage] | None:
    """Return the class of a message type, or None if this process has none."""
    return _registry.get(type)


def typed(message: RecordedMessage) -> TypedMessage:
    """Return a recorded message as an instance of the class of its type."""
    return class_of(message.type).from_recorded(message)


def is_typed_class(value: object) -> TypeGuard[type[TypedMessage]]:
    """Whether the value is a subclass of `TypedMessage`."""
    return isinstance(value, type) and issubclass(value, TypedMessage)


def type_name(value: str | type[TypedMessage]) -> str:
    """Return the message type of a class; a name is returned as it is."""
    return value if isinstance(value, str) else value.message_type


def _register(cls: type[TypedMessage]) -> None:
    classes = (_registry.get(cls.message_type, cls), cls)
    known, new = (f"{one.__module__}.{one.__qualname__}" for one in classes)
    if known != new:
        raise ValidationError("type", cls.message_type, f"unique; {known} has the same type")
    _registry[cls.message_type] = cls


def _check_names(cls: type[TypedMessage], names: tuple[str, ...], unindexed: Iterable[str]) -> None:
    for name in names:
        if name.startswith("_") or hasattr(TypedMessage, name):
            raise ValidationError(
                f"attribute of {cls.__name__}", name, "another name: this one is reserved"
            )
    for name in unindexed:
        if name not in names:
            raise ValidationError("unindexed", name, f"one of {', '.join(names)}")
