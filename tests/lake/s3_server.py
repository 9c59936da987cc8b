"""An S3 server for tests: moto, in an environment of its own that is made on first use."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "s3-server-requirements.txt"
CACHE = HERE.parent.parent / ".cache"


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Run a server with the bucket `lake`; yield how to sign in, by the names of pyiceberg."""
    command = [str(_python()), str(HERE / "s3_program.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()  # which ends it


def _python() -> Path:
    """Return the interpreter of the server's environment."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    folder = CACHE / f"s3-server-{digest}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "s3-server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder)
    return folder / "bin" / "python"


def _make(folder: Path) -> None:
    work = folder.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(work)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(REQUIREMENTS)]
    subprocess.run([str(work / "bin" / "python"), *install], check=True)
    work.rename(folder)
