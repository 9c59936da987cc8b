"""What an outbox message carries: text, bytes, or anything JSON can hold."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import ValidationError
from penstock.serializer import JsonSerializer, encode_object

Payload = str | bytes | dict[str, Any] | list[Any] | int | float | bool | None

_JSON = JsonSerializer()


def encode(payload: object, name: str = "payload") -> tuple[bytes, str]:
    """Return the payload's bytes, and how to read them: as text, json or bytes."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), "bytes"
    if isinstance(payload, str):
        try:
            return payload.encode(), "text"
        except UnicodeEncodeError:
            raise ValidationError(name, payload, "text without halves of surrogate pairs") from None
    try:
        wrapped = encode_object(_JSON, "", name, {"payload": payload})
    except ValidationError as error:
        raise ValidationError(name, payload, error.expected) from None
    encoded = wrapped[len('{"payload":') : -1].encode()
    if msgspec.json.decode(encoded) != payload:  # as of a UUID, a set, a tuple, keys of numbers
        raise ValidationError(name, payload, "text, bytes, or what JSON gives back as it was")
    return encoded, "json"


def decode(payload: bytes, encoding: str) -> Payload:
    """Return the payload as it was given."""
    if encoding == "bytes":
        return payload
    if encoding == "text":
        return payload.decode()
    return msgspec.json.decode(payload)  # type: ignore[no-any-return]
