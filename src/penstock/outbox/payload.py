"""The payload of an outbox message: text, bytes, or a JSON value.

SQL can enqueue bytes that do not match their encoding. Such a payload is read as an
`UndecodablePayload`, so that its message can be listed, and fails without affecting others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import ValidationError, first_line, shown
from penstock.message.serializer import JsonSerializer, encode_object


@dataclass(frozen=True, slots=True)
class UndecodablePayload:
    """The bytes of a payload that do not match their encoding, and the reason."""

    raw: bytes
    encoding: str
    reason: str

    def __str__(self) -> str:
        return f"{shown(self.raw)}, which is not {self.encoding}: {self.reason}"


Payload = str | bytes | dict[str, Any] | list[Any] | int | float | bool | UndecodablePayload | None

_JSON = JsonSerializer()


def encode(payload: object, name: str = "payload") -> tuple[bytes, str]:
    """Return the payload's bytes and their encoding: text, json or bytes."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), "bytes"
    if isinstance(payload, str):
        try:
            return payload.encode(), "text"
        except UnicodeEncodeError:
            raise ValidationError(name, payload, "text without unpaired surrogates") from None
    try:
        wrapped = encode_object(_JSON, "", name, {"payload": payload})
    except ValidationError as error:
        raise ValidationError(name, payload, error.expected) from None
    encoded = wrapped[len('{"payload":') : -1].encode()
    if msgspec.json.decode(encoded) != payload:  # as of a UUID, a set, a tuple, keys of numbers
        raise ValidationError(name, payload, "text, bytes, or what JSON gives back as it was")
    return encoded, "json"


def decode(payload: bytes, encoding: str) -> Payload:
    """Return the payload as it was enqueued, or an `UndecodablePayload`."""
    if encoding == "bytes":
        return payload
    try:
        if encoding == "text":
            return payload.decode()
        return msgspec.json.decode(payload)  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as error:
        return UndecodablePayload(payload, encoding, first_line(error))
