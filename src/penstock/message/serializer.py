"""How `data` and `metadata` become JSON text and come back.

PostgreSQL stores them as `jsonb`, so a serializer's text must be a JSON object; what the object
means, and which Python values it may hold, is the serializer's choice. Three things JSON text can
say and `jsonb` cannot hold are refused before anything is sent: NaN and the infinities (msgspec
writes them as null, which would lose them silently), NUL characters, and halves of surrogate pairs.

What `jsonb` does to the rest: it keeps values but not the order of fields, and it writes a whole
number of 1e16 or more without a point, so that such a float is read as an integer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from penstock.errors import ValidationError

_OBJECT = re.compile(r"[ \t\r\n]*\{")


class Serializer(Protocol):
    """Turns the data of a message into JSON text and back. `type` is the message's type."""

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        """Return the JSON object for `value`."""

    def decode(self, type: str, text: str) -> dict[str, Any]:
        """Return the value that the JSON object stands for."""


class JsonSerializer:
    """The default: msgspec, which also writes datetimes, UUIDs, decimals, dataclasses and enums.

    `encode_unknown` is called with any other value and returns one that JSON knows, or raises
    TypeError.
    """

    def __init__(self, encode_unknown: Callable[[Any], Any] | None = None) -> None:
        self._encode_unknown = partial(_plain, encode_unknown or _unknown)
        self._encoder = msgspec.json.Encoder(enc_hook=self._encode_unknown)
        self._decoder = msgspec.json.Decoder(dict[str, Any])

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        """Return the JSON object for `value`."""
        encoded = self._encoder.encode(value)
        if b"null" in encoded or b"\\u0000" in encoded:
            _refuse_what_jsonb_cannot_hold(value, self._encode_unknown)
        return encoded.decode()

    def decode(self, type: str, text: str) -> dict[str, Any]:
        """Return the value that the JSON object stands for."""
        return self._decoder.decode(text)


class SerializerByType:
    """Uses a serializer of its own for each of some message types, and `default` for the others."""

    def __init__(
        self, serializers: Mapping[str, Serializer], default: Serializer | None = None
    ) -> None:
        self._serializers = dict(serializers)
        self._default = default or JsonSerializer()

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        """Return the JSON object for `value`, by the serializer of `type`."""
        return self._serializers.get(type, self._default).encode(type, value)

    def decode(self, type: str, text: str) -> dict[str, Any]:
        """Return the value that the JSON object stands for, by the serializer of `type`."""
        return self._serializers.get(type, self._default).decode(type, text)


def encode_object(serializer: Serializer, type: str, name: str, value: Mapping[str, Any]) -> str:
    """Return `value` as the text of a JSON object, or say why it cannot be one."""
    try:
        text = serializer.encode(type, value)
    except ValidationError as error:
        raise ValidationError(f"{name}{error.name}", error.value, error.expected) from None
    except UnicodeEncodeError:
        raise ValidationError(name, value, "text without halves of surrogate pairs") from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ValidationError(name, value, f"something JSON can hold ({error})") from error
    if not isinstance(text, str) or not _OBJECT.match(text):
        raise ValidationError(name, value, "a JSON object once serialized")
    return text


def _refuse_what_jsonb_cannot_hold(
    value: Any, encode_unknown: Callable[[Any], Any], path: str = ""
) -> None:
    refuse = partial(_refuse_what_jsonb_cannot_hold, encode_unknown=encode_unknown)
    match value:
        case float() if not math.isfinite(value):
            raise ValidationError(path, value, "a finite number")
        case str() if "\0" in value:
            raise ValidationError(path, value, "text without NUL characters")
        case None | bool() | int() | float() | str():
            pass
        case Mapping():
            for key, item in value.items():
                refuse(key, path=f"{path}[{key!r}]")
                refuse(item, path=f"{path}[{key!r}]")
        case list() | tuple() | set() | frozenset():
            for index, item in enumerate(value):
                refuse(item, path=f"{path}[{index}]")
        case _:  # a dataclass or the like
            refuse(msgspec.to_builtins(value, enc_hook=encode_unknown), path=path)


def _plain(encode_unknown: Callable[[Any], Any], value: Any) -> Any:
    """Return a value that msgspec does not know as one that it does."""
    return dict(value) if isinstance(value, Mapping) else encode_unknown(value)


def _unknown(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
