"""Stream names, taken apart and put together.

A stream name says what kind of thing a stream is about, and which one::

    account:command+audit-123+456
    ------- ------- ----- -------
       |       |      |      id: from the first hyphen on; hyphens and pluses are part of it
       |       +------+----- types: from the first colon on, parted by pluses
       +-------------------- base category
    --------------------- category: all before the first hyphen

Only the base category is required. A name without an id is a category: the address of a feed of
all its streams, and a stream in its own right. Types belong to the category, so `account` and
`account:command` are two feeds, not one within the other.

An id may be compound. Its **cardinal id** is the part that names the entity: it ends at the first
`+` if there is one, else at the first `-`. A consumer group shares out streams by a hash of the id
up to its first `+`, and by nothing else, so that `account-123` and `account:command-123+456` go to
the same member, and so that a group may move to Message DB, or from there, without a stream
changing hands. A stream without an id belongs to no member.

Nothing here asks whether a name is a good one: any string is taken apart, exactly as the server's
functions of the same names do it. Only `stream_name`, which makes names, is strict.
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
    """The id, everything after the first hyphen; None for a category.

    >>> id("withdrawal:position-consumer-1")
    'consumer-1'
    """
    _, hyphen, rest = stream_name.partition("-")
    return rest if hyphen else None


def cardinal_id(stream_name: str) -> str | None:
    """The part of the id that names the entity; None for a category.

    >>> cardinal_id("account-123-456"), cardinal_id("account-12-3+456")
    ('123', '12-3')
    """
    whole = id(stream_name)
    if whole is None:
        return None
    return whole.partition("+" if "+" in whole else "-")[0]


def category(stream_name: str) -> str:
    """The category with its types, everything before the first hyphen.

    >>> category("account:command-123")
    'account:command'
    """
    return stream_name.partition("-")[0]


def is_category(stream_name: str) -> bool:
    """Whether the name has no id, and so names a whole category.

    >>> is_category("account:command"), is_category("account-123")
    (True, False)
    """
    return "-" not in stream_name


def types(stream_name: str) -> list[str]:
    """The category's types in their order; an empty list if it has none.

    >>> types("transaction:event+audit-123")
    ['event', 'audit']
    """
    _, _, qualifiers = category(stream_name).partition(":")
    return [qualifier for qualifier in qualifiers.split("+") if qualifier]


def base_category(stream_name: str) -> str:
    """The category without its types, everything before the first colon.

    >>> base_category("account:command-123")
    'account'
    """
    return category(stream_name).partition(":")[0]


get_category_types = types
get_base_category = base_category


def hash_64(value: str) -> int:
    """The hash that Message DB's server function gives: half an MD5 as a signed 64-bit integer.

    >>> hash_64("account-123")
    2828383952216582226
    """
    digest = md5(value.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], signed=True)


def group_member(stream_name: str, size: int) -> int | None:
    """The member, from 0, that reads this stream in a group of `size`; None for a category.

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
    """The stream name made of these parts, which the functions above take apart again.

    The category may bring types of its own; `types` come after them.

    >>> stream_name("account:command", "consumer-1", types=["position"])
    'account:command+position-consumer-1'

    Raises:
        ValueError: A part is empty, or holds a separator that would end it early.
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
