"""Tests of the outbox run both ways, except where a module says otherwise."""

from tests.both_ways import event_loop_thread, store, way

__all__ = ["event_loop_thread", "store", "way"]
