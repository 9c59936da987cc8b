"""Functions that parse and build stream names.

A stream name consists of a category and an id::

    account:command+audit-123+456
    ------- ------- ----- -------
       |       |      |      id: after the first hyphen; may contain hyphens and pluses
       |       +------+----- types: after the first colon, separated by pluses
       +-------------------- base category
    --------------------- category: everything before the first hyphen

Only the base category is required. A name without an id is a category, which contains all its
streams, and also a stream of its own. Types are part of the category: `account` and
`account:command` are two separate categories.

An id may be compound. Its **cardinal id** identifies the entity: it ends at the first `+` if there
is one, else at the first `-`. A consumer group assigns streams to members by a hash of the id up to
its first `+`, as Message DB does, so that `account-123` and `account:command-123+456` have the same
member, and a group can move between Message DB and Penstock. A stream without an id has no member.

The parsing functions accept any string, and return what the server's functions of the same names
return. Only `stream_name`, which builds names, validates its arguments.
"""

from collections.abc import Iterable
from hashlib import md5
from uuid import UUID

__all__ = [
    "base_category",
    "cardinal_id",
    "category",
    "get_base_category",
    "get_category_types",
    "group_member",
    "hash_64",
    "id",
    "is_category",
    "stream_name",
    "types",
]


def id(stream_name: str) -> str | None:
    """Return the id, everything after the first hyphen; None for a category.

    >>> id("withdrawal:position-consumer-1")
    'consumer-1'
    """
    _, hyphen, rest = stream_name.partition("-")
    return rest if hyphen else None


def cardinal_id(stream_name: str) -> str | None:
    """Return the part of the id that identifies the entity; None for a category.

    >>> cardinal_id("account-123-456"), cardinal_id("account-12-3+456")
    ('123', '12-3')
    """
    whole = id(stream_name)
    if whole is None:
        return None
    return whole.partition("+" if "+" in whole else "-")[0]


def category(stream_name: str) -> str:
    """Return the category with its types, everything before the first hyphen.

    >>> category("account:command-123")
    'account:command'
    """
    return stream_name.partition("-")[0]


def is_category(stream_name: str) -> bool:
    """Whether the name has no id, and so is a category.

    >>> is_category("account:command"), is_category("account-123")
    (True, False)
    """
    return "-" not in stream_name


def types(stream_name: str) -> list[str]:
    """Return the category's types in order; an empty list if it has none.

    >>> types("transaction:event+audit-123")
    ['event', 'audit']
    """
    _, _, qualifiers = category(stream_name).partition(":")
    return [qualifier for qualifier in qualifiers.split("+") if qualifier]


def base_category(stream_name: str) -> str:
    """Return the category without its types, everything before the first colon.

    >>> base_category("account:command-123")
    'account'
    """
    return category(stream_name).partition(":")[0]


get_category_types = types
get_base_category = base_category


def hash_64(value: str) -> int:
    """Return Message DB's hash: the first half of the MD5 as a signed 64-bit integer.

    >>> hash_64("account-123")
    2828383952216582226
    """
    digest = md5(value.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], signed=True)


def group_member(stream_name: str, size: int) -> int | None:
    """Return the member, from 0, that reads this stream in a group of `size`; None for a category.

    Raises:
        ValueError: The size is below 1.
    """
    if size < 1:
        raise ValueError(f"a consumer group has at least one member, not {size}")
    whole = id(stream_name)
    if whole is None:
        return None
    return abs(hash_64(whole.partition("+")[0])) % size


def stream_name(category: str, id: str | UUID | None = None, *, types: Iterable[str] = ()) -> str:
    """Return the stream name with these parts.

    The category may already have types; `types` are appended.

    >>> stream_name("account:command", "consumer-1", types=["position"])
    'account:command+position-consumer-1'

    Raises:
        ValueError: A part is empty or contains a separator.
    """
    name = _part("category", category, without="-")
    _part("category", base_category(category))
    for type in types:
        name += ("+" if ":" in name else ":") + _part("type", type, without="-+")
    return name if id is None else f"{name}-{_part('id', str(id))}"


def _part(kind: str, value: str, without: str = "") -> str:
    if not value:
        raise ValueError(f"a stream name's {kind} must not be empty")
    for separator in without:
        if separator in value:
            raise ValueError(f"a stream name's {kind} must not contain {separator!r}: {value!r}")
    return value
