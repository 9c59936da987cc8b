"""Serializers: `data` and `metadata` as JSON text.

PostgreSQL stores them as `jsonb`, so a serializer must return a JSON object. Its fields and their
meaning are up to the serializer. Values that `jsonb` cannot store are refused before anything is
sent: NaN and infinities (which msgspec writes as null), NUL characters, and unpaired surrogates.

`jsonb` does not keep the order of fields. It writes a float without a fraction of 1e16 or more
without a decimal point, so that it is read as an int.
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
    """Converts the data of a message to JSON text and back. `type` is the message type."""

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        """Return the JSON object for `value`."""

    def decode(self, type: str, text: str) -> dict[str, Any]:
        """Return the value of the JSON object."""


class JsonSerializer:
    """The default: msgspec, which also encodes datetimes, UUIDs, decimals, dataclasses and enums.

    `encode_unknown` is called with any other value. It returns a value that JSON can represent,
    or raises TypeError.
    """

    def __init__(self, encode_unknown: Callable[[Any], Any] | None = None) -> None:
        self._encode_unknown = partial(_plain, encode_unknown or _unknown)
        self._encoder = msgspec.json.Encoder(enc_hook=self._encode_unknown)
        self._decoder = msgspec.json.Decoder(dict[str, Any])

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        """Return the JSON object for `value`."""
        encoded = self._encoder.encode(value)
        if b"null" in encoded or b"\\u0000" in encoded:
            _check_jsonb_can_store(value, self._encode_unknown)
        return encoded.decode()

    def decode(self, type: str, text: str) -> dict[str, Any]:
        """Return the value of the JSON object."""
        return self._decoder.decode(text)


class SerializerByType:
    """Uses a separate serializer for some message types, and `default` for the others."""

    def __init__(
        self, serializers: Mapping[str, Serializer], default: Serializer | None = None
    ) -> None:
        self._serializers = dict(serializers)
        self._default = default or JsonSerializer()

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        """Return the JSON object for `value`, from the serializer of `type`."""
        return self._serializers.get(type, self._default).encode(type, value)

    def decode(self, type: str, text: str) -> dict[str, Any]:
        """Return the value of the JSON object, from the serializer of `type`."""
        return self._serializers.get(type, self._default).decode(type, text)


def encode_object(serializer: Serializer, type: str, name: str, value: Mapping[str, Any]) -> str:
    """Return `value` as the text of a JSON object, or raise ValidationError."""
    try:
        text = serializer.encode(type, value)
    except ValidationError as error:
        raise ValidationError(f"{name}{error.name}", error.value, error.expected) from None
    except UnicodeEncodeError:
        raise ValidationError(name, value, "text without unpaired surrogates") from None
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ValidationError(name, value, f"a value that JSON can represent ({error})") from error
    if not isinstance(text, str) or not _OBJECT.match(text):
        raise ValidationError(name, value, "serialized as a JSON object")
    return text


def _check_jsonb_can_store(
    value: Any, encode_unknown: Callable[[Any], Any], path: str = ""
) -> None:
    check = partial(_check_jsonb_can_store, encode_unknown=encode_unknown)
    match value:
        case float() if not math.isfinite(value):
            raise ValidationError(path, value, "a finite number")
        case str() if "\0" in value:
            raise ValidationError(path, value, "text without NUL characters")
        case None | bool() | int() | float() | str():
            pass
        case Mapping():
            for key, item in value.items():
                check(key, path=f"{path}[{key!r}]")
                check(item, path=f"{path}[{key!r}]")
        case list() | tuple() | set() | frozenset():
            for index, item in enumerate(value):
                check(item, path=f"{path}[{index}]")
        case _:  # a dataclass or the like
            check(msgspec.to_builtins(value, enc_hook=encode_unknown), path=path)


def _plain(encode_unknown: Callable[[Any], Any], value: Any) -> Any:
    """Return a value of an unsupported type as one that msgspec supports."""
    return dict(value) if isinstance(value, Mapping) else encode_unknown(value)


def _unknown(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} cannot be represented in JSON")
