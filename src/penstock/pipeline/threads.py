"""Spark in threads other than the one that made the session.

Spark looks for Python data sources in the session that is active in the calling thread. In a thread
where none is, it says that there is no format `penstock`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pyspark.sql import SparkSession

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread."""
    if getattr(spark, "_jvm", None) is not None:  # a Spark Connect session needs no such thing
        java = SparkSession._get_j_spark_session_class(spark._jvm)
        java.setActiveSession(spark._jsparkSession)


def on_spark(
    spark: SparkSession,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Let a function run Spark jobs in whatever thread it is called: an outbox handler, say."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def activated(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            activate(spark)
            return function(*arguments, **named)

        return activated

    return decorate
