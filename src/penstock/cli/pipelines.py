"""`penstock run`, `penstock graph` and `penstock pipelines`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli.printing import console, note, print_json, printable, shown_age, table
from penstock.cli.target import Folder, Json, Url, duration, open_existing, settings_for
from penstock.errors import SetupError, SparkNotRunning
from penstock.log.overview import server_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline import Pipeline, Summary
    from penstock.pipeline.status import ProcessorStatus

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:NAME]",
        help="The file that defines the pipeline, and which one if there are several.",
        show_default=False,
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
            show_default=False,
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
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Run a pipeline on Spark, exactly once.

    Kill it anywhere and start it again: the result is the same. SIGTERM and Ctrl-C finish the
    steps under way.
    """
    need_spark()
    from penstock.cli.progress import ShownProgress
    from penstock.pipeline import Runner, load

    settings = settings_for(url, folder)
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
    _print_summary(summary)
    if not summary.succeeded:
        raise typer.Exit(1)


def graph(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE.svg", help="Draw it to a file.", show_default=False
        ),
    ] = None,
) -> None:
    """Check a pipeline and draw its graph: as text, or as an SVG file."""
    pipeline = _load(file)
    from penstock.pipeline.checks import check
    from penstock.pipeline.drawing import as_svg, as_text

    check(pipeline)
    if output is None:
        console().print(as_text(pipeline), soft_wrap=True)
    elif output.suffix.lower() == ".svg":
        output.write_text(as_svg(pipeline), encoding="utf-8")
    else:
        raise typer.BadParameter(f"{output}: the file has to end in .svg, which browsers show")
    if output is not None:
        note(f"wrote {output}")


pipelines = typer.Typer(name="pipelines", help="List and retire pipelines.")


@pipelines.callback(invoke_without_command=True)
def overview(
    context: typer.Context, json: Json = False, url: Url = None, folder: Folder = None
) -> None:
    """List the pipelines that have run on this database: their progress, lag and errors."""
    if context.invoked_subcommand:
        return
    need_spark()
    from penstock.pipeline.status import processors

    with open_existing(settings_for(url, folder)) as store:
        found = processors(store)
        now = store.run(server_time())
    if json:
        print_json(found)
    elif not found:
        note("no pipeline has run on this database yet")
    else:
        _print_processors(found, now)


@pipelines.command("retire")
def retire(
    pipeline: Annotated[str, typer.Argument(help="The pipeline.", show_default=False)],
    processor: Annotated[str, typer.Argument(help="The processor.", show_default=False)],
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Retire a processor that was removed from its pipeline.

    Retention no longer keeps what it has not read, and it has no lag. If it comes back, it goes on
    from where it was.
    """
    need_spark()
    from penstock.pipeline.status import retire as retire_processor

    with open_existing(settings_for(url, folder)) as store:
        retire_processor(store, pipeline, processor)
    note(f"{printable(f'{pipeline}.{processor}')} is retired")


def _load(file: str) -> Pipeline:
    """Return a file's pipeline; start Spark only if the file needs it while it is loaded."""
    need_spark()
    from penstock.pipeline import load

    try:
        return load(file)
    except SparkNotRunning:
        with _spark(file, "local[1]"):
            return load(file)


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


def _print_processors(found: list[ProcessorStatus], now: datetime) -> None:
    shown = table(
        pipeline="left", processor="left", kind="left", steps="right", read="right", wrote="right",
        lag="right", last_step="left", state="left",
    )  # fmt: skip
    for one in found:
        last = "" if one.last_step_at is None else f"{shown_age(now - one.last_step_at)} ago"
        state = _state(one)
        shown.add_row(
            one.pipeline, one.processor, one.kind, f"{one.steps:,}", f"{one.messages_in:,}",
            f"{one.messages_out:,}", f"{one.lag:,}", last, printable(state),
        )  # fmt: skip
    console().print(shown)


def _state(processor: ProcessorStatus) -> str:
    if processor.retired_at is not None:
        return "retired"
    return processor.error or ("rebuilding" if processor.rebuilding else "")


def _print_summary(summary: Summary) -> None:
    shown = table(
        processor="left", steps="right", read="right", wrote="right", errors="right",
        seconds="right", state="left",
    )  # fmt: skip
    for one in summary.progress.values():
        state = "" if one.error is None else printable(str(one.error))
        shown.add_row(
            one.processor, f"{one.steps:,}", f"{one.messages_in:,}", f"{one.messages_out:,}",
            f"{one.failed:,}", f"{one.seconds:.1f}", state,
        )  # fmt: skip
    console().print(shown)
    done = "done" if summary.succeeded else "stopped by an error; the next run goes on from here"
    print(f"{summary.pipeline}: {done}, {summary.seconds:.1f} s", file=sys.stderr)
