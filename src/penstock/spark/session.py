"""Spark sessions: one that is ready for Penstock, and its use in other threads.

`session()` works on a laptop without Java and on a cluster. It only makes settings that you can
also make yourself: this Python for the workers (with another one, Spark does not find the format
`penstock` and does not say why), UTC, Arrow, enough memory, and a quiet log.

Spark looks for Python data sources in the session that is active in the calling thread. In a thread
without one it reports that there is no format `penstock`; `on_spark` activates the session there.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import SetupError, ValidationError, first_line
from penstock.message import check_text
from penstock.spark.java import find_java_home, own_folder, write_file

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# The caller gets a failure as an exception, so the loggers that only repeat it are off. The
# gateway has the same level as the root: Spark announces a level that differs from it.
_QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
logger.writes.name = org.apache.spark.sql.execution.datasources.v2
logger.writes.level = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
"""

# Spark reads only values that exist and are not null, so Arrow need not check each access.
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def session(
    app_name: str = "penstock",
    *,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return the running Spark session, or start one.

    Args:
        app_name: the name in Spark's web UI.
        master: where it runs: `local[*]`, `spark://host:7077`, …; else `PENSTOCK_SPARK_MASTER`,
            else `local[*]`.
        config: Spark settings, which override ours.
    """
    check_text("app_name", app_name)
    chosen = master if master is not None else os.environ.get("PENSTOCK_SPARK_MASTER") or "local[*]"
    # for another master Spark prints a stack trace and an unclear error
    if not isinstance(chosen, str) or not chosen.startswith(("local", "spark", "yarn", "k8s")):
        expected = "a Spark master such as 'local[*]', 'spark://host:7077', 'yarn' or 'k8s://…'"
        raise ValidationError("master", chosen, expected)
    _prepare_environment()
    builder = SparkSession.builder.appName(app_name).master(chosen)
    for name, value in {**_settings(chosen), **(config or {})}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (Py4JJavaError, PySparkException) as error:
        raise SetupError(f"Spark does not start on master {chosen}: {first_line(error)}") from error


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread."""
    if getattr(spark, "_jvm", None) is not None:  # a Spark Connect session has no JVM here
        java = SparkSession._get_j_spark_session_class(spark._jvm)
        java.setActiveSession(spark._jsparkSession)


def separate_session(spark: SparkSession) -> SparkSession:
    """Return a session with the same settings, temporary views and functions, on the same Spark.

    Later changes in one of the two do not affect the other. `newSession` would drop the settings,
    views and functions of the user.
    """
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def has_stopped(spark: SparkSession) -> bool:
    """Whether the Spark of a session has ended: stopped, or its Java process gone."""
    context = spark.sparkContext
    java = getattr(context._gateway, "proc", None)  # None if Java started this driver
    if java is not None and java.poll() is not None:
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def on_spark(
    spark: SparkSession,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Let a function run Spark jobs in any thread, for example as an outbox handler."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def activated(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            activate(spark)
            return function(*arguments, **named)

        return activated

    return decorate


def _prepare_environment() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java_home())
    # these print a page of JSON for an error that the caller gets as an exception
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def _settings(master: str) -> dict[str, object]:
    logs = own_folder() / "log4j2.properties"
    write_file(logs, _QUIET)
    settings: dict[str, object] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # print where a worker was aborted, by which a pipeline recognizes a lost database
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"{_ARROW} -Dlog4j2.configurationFile={logs.as_uri()}",
        "spark.executor.extraJavaOptions": _ARROW,
    }
    if master.startswith("local"):
        # a small job needs few tasks
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings
