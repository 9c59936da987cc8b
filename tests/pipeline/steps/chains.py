"""A chain of streams that feed each other."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.pipeline import Pipeline
from tests.pipeline.steps.running import numbered, renumbered


def chain(length: int = 3, first: str = "q0") -> Pipeline:
    """Return a pipeline of streams that feed each other, declared from the last to the first."""
    pipe = Pipeline("chain")
    pipe.schema(first)
    for number in reversed(range(length)):
        add_link(pipe, f"q{number}", f"q{number + 1}")
    return pipe


def add_link(pipe: Pipeline, queue: str, output: str) -> None:
    @pipe.stream(alts=queue, output=output, limit=2, name=f"{queue}_on")
    def link(messages: DataFrame) -> DataFrame:
        return renumbered(numbered(messages), "n + 1")
