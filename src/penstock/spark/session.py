"""A Spark session that is ready for Penstock: one call, on a laptop without Java or on a cluster.

A session of your own works as well. This one only spares you the settings: this very Python for the
workers (with another one Spark does not find the format `penstock`, and does not say why), UTC,
Arrow, memory enough, and no page of log on the screen.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.errors import SetupError, ValidationError, first_line
from penstock.message import check_text
from penstock.spark.java import find_java_home, own_folder, write_file

# A failure is told by the exception that the caller gets, so those who only repeat it are silent.
# And the gateway decides whether Spark announces a log level: not if its own is the same.
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

# Spark asks only for values that are there and not null, so Arrow need not check that for each.
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# These print a page of JSON for an error that the caller gets as an exception.
_REPEATING = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


# What Spark itself takes; it would tell so by a stack trace and an error that says nothing.
_MASTERS = ("local", "spark", "yarn", "k8s")


def session(
    app_name: str = "penstock",
    *,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return the running Spark session, or start one.

    Args:
        app_name: what Spark's own pages call it.
        master: where it runs: `local[*]`, `spark://host:7077`, …; else `PENSTOCK_SPARK_MASTER`,
            else `local[*]`.
        config: Spark settings, which win over ours.
    """
    check_text("app_name", app_name)
    chosen = master if master is not None else os.environ.get("PENSTOCK_SPARK_MASTER") or "local[*]"
    if not isinstance(chosen, str) or not chosen.startswith(_MASTERS):
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


def _prepare_environment() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java_home())
    for name in _REPEATING:
        PySparkLogger.getLogger(name).setLevel("CRITICAL")


def _settings(master: str) -> dict[str, object]:
    settings: dict[str, object] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # of a worker that is aborted, where it was: so a step knows that it lost the database
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"{_ARROW} -Dlog4j2.configurationFile="
        + _quiet_logs().as_uri(),
        "spark.executor.extraJavaOptions": _ARROW,
    }
    if master.startswith("local"):
        # the tasks of a small job should not outnumber the processors by far
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def _quiet_logs() -> Path:
    path = own_folder() / "log4j2.properties"
    write_file(path, _QUIET, stat.S_IRUSR | stat.S_IWUSR)
    return path
