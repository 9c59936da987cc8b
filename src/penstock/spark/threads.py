"""Spark in threads other than the one that made the session, and sessions beside each other.

Spark looks for Python data sources in the session that is active in the calling thread. In a thread
where none is, it says that there is no format `penstock`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread."""
    if getattr(spark, "_jvm", None) is not None:  # a Spark Connect session needs no such thing
        java = SparkSession._get_j_spark_session_class(spark._jvm)
        java.setActiveSession(spark._jsparkSession)


def separate_session(spark: SparkSession) -> SparkSession:
    """Return a session with the same settings, temporary views and functions, on the same Spark.

    What is changed in one of the two is not seen in the other. `newSession` would leave out what
    the user has set and registered.
    """
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def has_stopped(spark: SparkSession) -> bool:
    """Whether the Spark of a session has ended: stopped, or its Java process gone."""
    context = spark.sparkContext
    java = getattr(context._gateway, "proc", None)  # none if the driver was started by Java
    if java is not None and java.poll() is not None:
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


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
