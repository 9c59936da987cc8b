"""Every test of consumers runs with blocking classes, then with async ones."""

from tests.both_ways import (
    any_store,
    event_loop_thread,
    shared_store,
    shared_stores,
    shared_url,
    store,
    way,
)

__all__ = [
    "any_store",
    "event_loop_thread",
    "shared_store",
    "shared_stores",
    "shared_url",
    "store",
    "way",
]
