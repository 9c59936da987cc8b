"""Being a guest in the Python processes of Spark's, which plan and run tasks."""

from __future__ import annotations

import gc
import os


def settle() -> None:
    """Keep such a process from looking for garbage in all that it has loaded, after each task.

    With pyarrow, pandas and psycopg loaded, that takes longer than many a task. What is there by
    now stays as long as the process does, so nothing is lost by not looking there.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):  # else this is somebody's own process, or lives once
        gc.freeze()
