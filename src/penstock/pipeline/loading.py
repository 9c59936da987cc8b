"""Loading a pipeline from a file: `shop.py`, or `shop.py:pipe` where there are several.

A file may use Spark while it is loaded (a UDF, `f.col`). That needs a running session.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from traceback import extract_tb

import pyspark
from pyspark import SparkContext, cloudpickle

from penstock.errors import PenstockError, PipelineNotFound, SparkNotRunning, first_line
from penstock.pipeline.graph import Pipeline


def load(reference: str) -> Pipeline:
    """Return the pipeline that a file defines. The name is a variable's, or the pipeline's own."""
    path, _, name = reference.partition(":")
    found = _pipelines(_file(reference))
    distinct = list({id(one): one for one in found.values()}.values())
    for variable, one in found.items():
        if name in (variable, one.name) or (not name and len(distinct) == 1):
            return one
    names = ", ".join(sorted(one.name for one in distinct))
    if name:
        problem = f"there is no pipeline {name}; there are {names or 'none'}"
    elif distinct:
        problem = f"there are several pipelines, {names}: say FILE:NAME"
    else:
        problem = "there is no pipeline in it: define pipe = Pipeline(name)"
    raise PipelineNotFound(path, problem)


def check_file(reference: str) -> None:
    """Raise if there is no such file, or it is not Python. This is cheap; starting Spark is not."""
    path = _file(reference)
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise _not_loaded(path, getattr(error, "lineno", None), error) from error


def _file(reference: str) -> Path:
    path = Path(reference.partition(":")[0])
    if not path.is_file():
        raise PipelineNotFound(str(path), "there is no such file")
    return path


def _not_loaded(path: Path, line: int | None, error: Exception) -> PenstockError:
    place = f"{path}:{line}" if line else str(path)
    calls = extract_tb(error.__traceback__)
    # Spark's own code failed: `f.col` without a session is a bare AssertionError
    in_spark = Path(calls[-1].filename).is_relative_to(Path(pyspark.__file__).parent)
    if in_spark and SparkContext._active_spark_context is None:
        return SparkNotRunning(place)
    problem = f"it cannot be loaded: {type(error).__name__}: {first_line(error)}"
    return PipelineNotFound(place, problem)


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
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        raise
    except Exception as error:
        calls = extract_tb(error.__traceback__)
        lines = [at.lineno for at in calls if at.filename == str(path)]  # the last was executed
        raise _not_loaded(path, lines[-1] if lines else None, error) from error
    # workers cannot import this module: its functions are pickled by value
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return {name: one for name, one in vars(module).items() if isinstance(one, Pipeline)}
