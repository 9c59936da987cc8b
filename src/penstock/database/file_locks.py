"""Locks on files, which the kernel drops when their holder dies, however it dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def is_free(path: Path) -> bool:
    """Whether nobody holds a lock on the file."""
    try:
        unlock(lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def lock(path: Path, mode: int) -> int:
    """Wait for a lock on the file, and return the descriptor that holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unlock(descriptor: int) -> None:
    """Give up a lock, also for copies of its descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child just being spawned may hold a copy open
    os.close(descriptor)
