"""Several databases: a provider maps a grouping key to a store.

Messages and joins of one grouping key are in one database, so that a join and its members commit
together. A dispatcher handles the messages of all stores of a provider.
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
        """Return the store of this key's messages and joins."""

    def stores(self) -> Sequence[StoreType_co]:
        """Return all stores, for dispatchers."""


class MappedStores(Generic[StoreType]):
    """A provider over stores by name, with a function from a grouping key to a name."""

    def __init__(self, stores: Mapping[str, StoreType], name_of: Callable[[str], str]) -> None:
        if not stores:
            raise ValidationError("stores", stores, "at least one store")
        self._stores = dict(stores)
        self._name_of = name_of

    def store_for(self, grouping_key: str) -> StoreType:
        """Return the store of this key's messages and joins."""
        name = self._name_of(grouping_key)
        if name not in self._stores:
            known = ", ".join(sorted(self._stores))
            raise ValidationError("grouping_key", grouping_key, f"of one of the stores {known}")
        return self._stores[name]

    def stores(self) -> Sequence[StoreType]:
        """Return all stores."""
        return list(self._stores.values())
