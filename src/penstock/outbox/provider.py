"""Several databases: a provider says which store a grouping key belongs to.

Messages and joins of one grouping key live in one database, so that a join and its members commit
together; a dispatcher serves all the stores of a provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from penstock.errors import ValidationError

StoreType = TypeVar("StoreType")
StoreType_co = TypeVar("StoreType_co", covariant=True)


class StoreProvider(Protocol[StoreType_co]):
    """Maps grouping keys to stores."""

    def store_for(self, grouping_key: str) -> StoreType_co:
        """Return the store that this key's messages and joins live in."""

    def stores(self) -> Sequence[StoreType_co]:
        """Return all stores, for dispatchers to serve."""


class MappedStores(Generic[StoreType]):
    """A provider over stores by name, with a function from a grouping key to a name."""

    def __init__(self, stores: Mapping[str, StoreType], name_of: Callable[[str], str]) -> None:
        if not stores:
            raise ValidationError("stores", stores, "at least one store")
        self._stores = dict(stores)
        self._name_of = name_of

    def store_for(self, grouping_key: str) -> StoreType:
        """Return the store that this key's messages and joins live in."""
        name = self._name_of(grouping_key)
        if name not in self._stores:
            known = ", ".join(sorted(self._stores))
            raise ValidationError("grouping_key", grouping_key, f"of one of the stores {known}")
        return self._stores[name]

    def stores(self) -> Sequence[StoreType]:
        """Return all stores."""
        return list(self._stores.values())
