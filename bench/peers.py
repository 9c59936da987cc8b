"""An environment of their own for the packages that Penstock is compared with.

They stay out of the project's environment, where their requirements could hold ours back. A
comparison that needs one runs a script with `python()`; that installs `bench/requirements.txt` the
first time, and again when the file has changed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from bench.measuring import tell

FOLDER = Path(__file__).parent / ".venv"
PEERS = ("procrastinate", "pgqueuer", "asyncpg", "eventsourcing[postgres]")
REQUIREMENTS = Path(__file__).parent / "requirements.txt"


def python() -> Path:
    """Return the interpreter that can import the peers."""
    interpreter = FOLDER / "bin" / "python"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    mark = FOLDER / "requirements.sha256"
    if not mark.exists() or mark.read_text() != digest:
        tell("installing the peers in bench/.venv")
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        install = ["install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([interpreter, "-m", "pip", *install, "-r", REQUIREMENTS], check=True)
        mark.write_text(digest)
    return interpreter


def versions() -> dict[str, str]:
    """Return the versions that are asked for, by package."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pinned = [line.partition("==") for line in lines if "==" in line]
    return {name.partition("[")[0]: version for name, _, version in pinned if name in PEERS}
