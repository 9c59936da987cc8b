"""Spark's daemon, which forks the Python workers of tasks, with their modules imported beforehand.

A task that fails ends its worker, and many tests let tasks fail: each new worker would take most of
a second to import the same modules again.
"""

import gc

import adbc_driver_postgresql  # noqa: F401
import pandas as pd  # type: ignore[import-untyped]  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import penstock.spark.source  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
