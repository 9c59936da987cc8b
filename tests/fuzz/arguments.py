"""Which arguments of the public operations take text, and how a text gets into each.

Found by looking at the signatures, so that a new operation is attacked as soon as it exists; an
annotation that is not known here fails the test that lists them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import penstock
import penstock.admin
from penstock import Guard, Message, NewMessage, QueryCondition, TypedMessage


class Moved(TypedMessage, type="fuzz.moved"):
    """A message that has an attribute."""

    device: str


class Sent(TypedMessage, type="fuzz.sent"):
    """Another, for groups that would have to go through all of those."""

    device: str


#: an annotation, and what a text looks like as a value of it
PLACED: dict[str, Callable[[str], Any]] = {
    "str": lambda text: text,
    "str | None": lambda text: text,
    "str | bytes | None": lambda text: text,
    "int | str | None": lambda text: text,
    "UUID | str | None": lambda text: text,
    "IsolationLevel | str | None": lambda text: text,
    "str | Message | TypedMessage": lambda text: text,
    "JoinId | str": lambda text: text,
    "OutboxMessageId | str": lambda text: text,
    "str | Sequence[str]": lambda text: [text, "device"],
    "Sequence[MessageType]": lambda text: [text],
    "Sequence[OutboxMessageId | str] | None": lambda text: [text],
    "Iterable[JoinId | str]": lambda text: [text],
    "Mapping[str, Any] | None": lambda text: {text: [text, {text: text}]},
    "Mapping[str, str] | None": lambda text: {text: text},
    "Mapping[str, object]": lambda text: {"device": text, text: text},
    "Any": lambda text: {text: text},
    "Payload": lambda text: {text: text},
    "Iterable[Any]": lambda text: [text, {text: text}],
    "Messages": lambda text: [Message(text, {text: text}, {text: text})],
    "Iterable[Message | TypedMessage]": lambda text: [Message(text, {text: text})],
    "Iterable[NewMessage]": lambda text: [
        NewMessage(text, text, correlation_id=text, dedupe_key=text)
    ],
    "Iterable[tuple[str, Message | TypedMessage]]": lambda text: [(text, Message(text))],
    "Iterable[str] | None": lambda text: [text],
    "Mapping[str, int] | None": lambda text: {text: 0},
    "ClaimOrder": lambda text: text,
    "Returning": lambda text: text,
    "tuple[str, str] | None": lambda text: (text, text),
    "tuple[str, str]": lambda text: (text, text),
    "Iterable[QueryCondition]": lambda text: [QueryCondition(text, text, text)],
    "Guard | None": lambda text: Guard((QueryCondition("fuzz.moved", text, text),)),
    "Guard | Iterable[QueryCondition]": lambda text: Guard((QueryCondition(text, text, text),)),
}

#: annotations of arguments that take no text
_NO_TEXT = re.compile(
    r"(int|float|bool|datetime|timedelta|Duration)( \| None)?|Callable\[.*|CommitMode|Claim|Claimed"
    r"|psycopg\.Connection\[Any\]|Decider\[.*|Command|Operation\[Result\]|(Iterable\[)?type\[TypedMessage\]\]?"
)

SUBJECTS = {
    "store": penstock.Store,
    "transaction": penstock.Transaction,
    "admin": penstock.admin.Admin,
    "groups": penstock.Groups,
    "outbox": penstock.Outbox,
    "joins": penstock.Joins,
    "queue": penstock.Queue,
    "session": penstock.ConsumerSession,
}


def methods(subject: str) -> Iterator[tuple[str, list[inspect.Parameter]]]:
    """Yield each public method of a subject and its parameters."""
    for name, method in inspect.getmembers(SUBJECTS[subject], inspect.isfunction):
        shared = subject == "transaction" and hasattr(penstock.Store, name)
        if not name.startswith("_") and not shared:
            _, *parameters = inspect.signature(method).parameters.values()
            yield name, parameters


def text_arguments() -> list[tuple[str, str, inspect.Parameter]]:
    """Return subject, method and parameter of every argument that takes text."""
    return [
        (subject, name, parameter)
        for subject in SUBJECTS
        for name, parameters in methods(subject)
        for parameter in parameters
        if parameter.annotation in PLACED
    ]


def unknown_annotations() -> set[str]:
    """Return the annotations of public operations that nobody has looked at yet."""
    found = {
        parameter.annotation
        for subject in SUBJECTS
        for _, parameters in methods(subject)
        for parameter in parameters
    }
    return {one for one in found if one not in PLACED and not _NO_TEXT.fullmatch(one)}
