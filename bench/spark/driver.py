"""PostgreSQL's JDBC driver: the machine's, or Debian's package of it, fetched when it is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

from bench.measuring import tell
from bench.results import FOLDER

PACKAGE = "libpostgresql-jdbc-java"
JAR = Path("usr/share/java/postgresql.jar")
INSTALLED = Path("/") / JAR
CACHE = FOLDER / "cache"
MISSING = (
    f"No JDBC here: this machine has no driver, and `apt-get download {PACKAGE}` brought none. So "
    "ours stands alone."
)


def find_driver(installed: Path = INSTALLED, cache: Path = CACHE) -> Path | None:
    """Return the driver's jar; None if there is none to be had."""
    for jar in (installed, cache / JAR):
        if jar.exists():
            return jar
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    tell(f"fetching {PACKAGE}")
    cache.mkdir(parents=True, exist_ok=True)
    _run(cache, "apt-get", "download", PACKAGE)
    for package in cache.glob(f"{PACKAGE}_*.deb"):
        _run(cache, "dpkg-deb", "-x", package.name, ".")
    return cache / JAR if (cache / JAR).exists() else None


def versions() -> dict[str, str]:
    """Return the driver's version; nothing if there is no driver."""
    jar = find_driver()
    if jar is None:
        return {}
    with zipfile.ZipFile(jar) as files:
        manifest = files.read("META-INF/MANIFEST.MF").decode()
    found = re.search(r"^Implementation-Version: (\S+)", manifest, re.MULTILINE)
    return {"PostgreSQL's JDBC driver": found[1] if found else "unknown"}


def _run(folder: Path, *command: str) -> None:
    """Run a command in a folder; whether it worked shows there."""
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
