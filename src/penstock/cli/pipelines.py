"""`penstock run`, `penstock graph` and `penstock pipelines`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.admin.processors import ProcessorStatus, processors
from penstock.cli.printing import console, note, print_json, print_table
from penstock.cli.target import Json, command_group, duration, open_existing, selected_settings
from penstock.errors import SetupError, SparkNotRunning
from penstock.log.overview import server_time
from penstock.loops.durations import shown_age

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:NAME]",
        help="The file that defines the pipeline, and which one if there are several.",
    ),
]


def run(
    file: File,
    follow: Annotated[
        bool,
        typer.Option("--follow/--once", help="Run until stopped, or end when all is processed."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="Where Spark runs; PENSTOCK_SPARK_MASTER, or local[*], if not given.",
        ),
    ] = None,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch",
            help="Let all processors except the sources begin again; rebuild tables.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for another run of this pipeline to end.")
    ] = False,
    retry_for: Annotated[
        timedelta,
        typer.Option(
            "--retry-for",
            parser=duration,
            metavar="DURATION",
            help="With --follow: how long to retry a processor that fails before the run ends.",
        ),
    ] = "5min",  # type: ignore[assignment]
) -> None:
    """Run a pipeline on Spark, exactly once.

    Kill it anywhere and start it again: the result is the same. SIGTERM and Ctrl-C finish the
    steps under way.
    """
    need_spark()
    from penstock.cli.progress import ShownProgress
    from penstock.pipeline import Runner, load

    settings = selected_settings()
    with _spark(file, master) as spark:
        pipeline = load(file)
        with penstock.connect(settings) as store, ShownProgress(pipeline, store) as shown:
            runner = Runner(pipeline, store, spark, on_step=shown.step)
            if from_scratch:
                runner.from_scratch(wait=wait)
            if follow:
                summary = runner.run(wait=wait, check=False, retry_for=retry_for)
            else:
                summary = runner.run_until_idle(wait=wait, check=False)
    print_table(
        "processor >steps >read >wrote >errors >seconds state",
        (
            (
                one.processor,
                f"{one.steps:,}",
                f"{one.messages_in:,}",
                f"{one.messages_out:,}",
                f"{one.failed:,}",
                f"{one.seconds:.1f}",
                one.error,
            )
            for one in summary.progress.values()
        ),
    )
    done = "done" if summary.succeeded else "stopped by an error; the next run goes on from here"
    print(f"{summary.pipeline}: {done}, {summary.seconds:.1f} s", file=sys.stderr)
    if not summary.succeeded:
        raise typer.Exit(1)


def graph(
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="Draw it to a file.")
    ] = None,
) -> None:
    """Check a pipeline and draw its graph: as text, or as an SVG file."""
    need_spark()
    from penstock.pipeline import load
    from penstock.pipeline.checks import check
    from penstock.pipeline.drawing import as_svg, as_text

    try:
        pipeline = load(file)
    except SparkNotRunning:  # the file needs it while it is loaded
        with _spark(file, "local[1]"):
            pipeline = load(file)
    check(pipeline)
    if output is None:
        console().print(as_text(pipeline), soft_wrap=True)
        return
    if output.suffix.lower() != ".svg":
        raise typer.BadParameter(f"{output}: the file has to end in .svg, which browsers show")
    output.write_text(as_svg(pipeline), encoding="utf-8")
    note(f"wrote {output}")


def overview(json: Json = False) -> None:
    """List the pipelines that have run on this database: their progress, lag and errors."""
    with open_existing() as store:
        found = store.run(processors())
        now = store.run(server_time())
    if json:
        print_json(found)
    elif not found:
        note("no pipeline has run on this database yet")
    else:
        print_table(
            "pipeline processor kind >steps >read >wrote >lag last_step state",
            (
                (
                    one.pipeline,
                    one.processor,
                    one.kind,
                    f"{one.steps:,}",
                    f"{one.messages_in:,}",
                    f"{one.messages_out:,}",
                    f"{one.lag:,}",
                    one.last_step_at and f"{shown_age(now - one.last_step_at)} ago",
                    _state(one),
                )
                for one in found
            ),
        )


def _state(processor: ProcessorStatus) -> str:
    if processor.retired_at is not None:
        return "retired"
    return processor.error or ("rebuilding" if processor.rebuilding else "")


def retire(
    pipeline: Annotated[str, typer.Argument(help="The pipeline.")],
    processor: Annotated[str, typer.Argument(help="The processor.")],
) -> None:
    """Retire a processor that was removed from its pipeline.

    Retention no longer keeps what it has not read, and it has no lag. If it comes back, it goes on
    from where it was.
    """
    need_spark()
    from penstock.pipeline.status import retire as retire_processor

    with open_existing() as store:
        retire_processor(store, pipeline, processor)
    note(f"{pipeline}.{processor} is retired")


@contextmanager
def _spark(file: str, master: str | None) -> Iterator[SparkSession]:
    """Start Spark for a file, and stop it at the end."""
    from penstock.pipeline.loading import check_file
    from penstock.spark import session
    from penstock.spark.session import has_stopped

    check_file(file)
    logging.getLogger().addFilter(_not_of_gateway)
    name = Path(file.partition(":")[0]).name
    note(f"starting Spark for {name}")
    spark = session(f"penstock {name}", master=master)
    try:
        yield spark
    finally:
        if not has_stopped(spark):
            spark.stop()
        logging.getLogger().removeFilter(_not_of_gateway)


def _not_of_gateway(record: logging.LogRecord) -> bool:
    """Drop the tracebacks that py4j logs in each thread when the Java process has ended."""
    return "py4j" not in record.pathname


def need_spark() -> None:
    """Raise an error that says what to install if Spark is missing."""
    try:
        import penstock.pipeline  # noqa: F401
    except ModuleNotFoundError as error:
        raise SetupError(f"pipelines need Spark: {error}") from None


pipelines = command_group("pipelines", "List and retire pipelines.", {"retire": retire}, overview)
