"""Fixtures for the tests that run twice: a module that has `store = both_ways.store` does."""

from tests.both_ways import event_loop_thread, way

__all__ = ["event_loop_thread", "way"]
