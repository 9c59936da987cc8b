"""Loading a pipeline from a file: `shop.py`, or `shop.py:pipe` where there are several.

A file may use Spark while it is loaded (a UDF, `f.col`). That needs a running session.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

import pyspark
from pyspark import SparkContext, cloudpickle

from penstock.errors import PenstockError, PipelineNotFound, SparkNotRunning, first_line
from penstock.pipeline.graph import Pipeline


def load(reference: str) -> Pipeline:
    """Return the pipeline that a file defines. The name is a variable's, or the pipeline's own."""
    path, _, name = reference.partition(":")
    found = _pipelines(_file(reference))
    if name:
        for variable, one in found.items():
            if name in (variable, one.name):
                return one
        names = ", ".join(sorted(one.name for one in found.values())) or "none"
        raise PipelineNotFound(path, f"there is no pipeline {name}; there are {names}")
    distinct = {id(one): one for one in found.values()}
    if not distinct:
        raise PipelineNotFound(path, "there is no pipeline in it: define pipe = Pipeline(name)")
    if len(distinct) > 1:
        names = ", ".join(sorted(one.name for one in distinct.values()))
        raise PipelineNotFound(path, f"there are several pipelines, {names}: say FILE:NAME")
    return next(iter(distinct.values()))


def check_file(reference: str) -> None:
    """Raise if there is no such file, or it is not Python. This is cheap; starting Spark is not."""
    path = _file(reference)
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}:{line}" if line else str(path)
        raise PipelineNotFound(place, _cannot_be_loaded(error)) from error


def _execute(loader: Loader, module: ModuleType, path: Path) -> None:
    try:
        loader.exec_module(module)
    except PenstockError:
        raise
    except Exception as error:
        place = _place_in(path, error)
        if SparkContext._active_spark_context is None and _is_raised_by_spark(error):
            raise SparkNotRunning(place) from error
        raise PipelineNotFound(place, _cannot_be_loaded(error)) from error


def _file(reference: str) -> Path:
    path = Path(reference.partition(":")[0])
    if not path.is_file():
        raise PipelineNotFound(str(path), "there is no such file")
    return path


def _cannot_be_loaded(error: Exception) -> str:
    return f"it cannot be loaded: {type(error).__name__}: {first_line(error)}"


def _is_raised_by_spark(error: Exception) -> bool:
    """Whether Spark's own code failed: `f.col` without a session is a bare AssertionError."""
    where = extract_tb(error.__traceback__)[-1].filename
    return Path(where).is_relative_to(Path(pyspark.__file__).parent)


def _place_in(path: Path, error: Exception) -> str:
    """Return the file and the last of its lines that was executed."""
    lines = [at.lineno for at in extract_tb(error.__traceback__) if at.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _pipelines(path: Path) -> dict[str, Pipeline]:
    name = f"penstock_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PipelineNotFound(str(path), "it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # a file may import modules of its folder
    _execute(spec.loader, module, path)
    # workers cannot import this module: its functions are pickled by value
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return {name: one for name, one in vars(module).items() if isinstance(one, Pipeline)}
