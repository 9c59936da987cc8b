"""A Chromium for the tests: one that is on the machine, or that of npm's `@sparticuz/chromium`.

That package is made for machines with nothing on them: the program, packed with Brotli, the shared
libraries that it needs beside the C library, and a font. Playwright's own Node.js unpacks them.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from playwright._impl._driver import compute_driver_executable
from playwright.sync_api import Browser, Error, Playwright

from tests import npm

VERSION = "153.0.0"
ON_THE_MACHINE = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_UNPACK = """
const { createReadStream, createWriteStream } = require("node:fs");
const { pipeline } = require("node:stream/promises");
const { createBrotliDecompress } = require("node:zlib");
const [from, to] = process.argv.slice(1);
pipeline(createReadStream(from), createBrotliDecompress(), createWriteStream(to));
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>{folder}/fonts</dir>
  <cachedir>{folder}/fonts-cache</cachedir>
</fontconfig>
"""


class NoBrowser(Exception):
    """Why there is none, program by program."""


def launch(playwright: Playwright) -> Browser:
    """Start the first Chromium that starts, with an empty profile of its own."""
    reasons: list[str] = []
    for program, variables in _candidates(reasons):
        try:
            return playwright.chromium.launch(
                executable_path=program, args=ARGUMENTS, env={**os.environ, **variables}
            )
        except Error as error:
            reasons.append(f"{program}: {error.message.strip().splitlines()[0]}")
    raise NoBrowser("; ".join(reasons))


def _candidates(reasons: list[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield programs and the environment of each."""
    found = [path for name in ON_THE_MACHINE if (path := shutil.which(name))]
    yield from ((path, {}) for path in found)
    if not found:
        reasons.append(f"none of {', '.join(ON_THE_MACHINE)} is on the machine")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        reasons.append("@sparticuz/chromium is for Linux on x86_64")
        return
    try:
        folder = _from_npm()
    except subprocess.CalledProcessError as error:
        reasons.append(f"@sparticuz/chromium {VERSION}: {error}: {error.stderr.strip()[-500:]}")
        return
    libraries = {"LD_LIBRARY_PATH": str(folder / "lib")}
    yield str(folder / "chromium"), {**libraries, "FONTCONFIG_FILE": str(folder / "fonts.conf")}


def _from_npm() -> Path:
    """Return the folder of the package's program, libraries and fonts, unpacked once."""
    packed = npm.package("@sparticuz/chromium", VERSION) / "bin"
    folder = packed / "unpacked"
    with (packed / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack_all(packed, folder)
    return folder


def _unpack_all(packed: Path, folder: Path) -> None:
    work = packed / "unpacked.part"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name in ("chromium", "al2023.tar", "fonts.tar"):
        node = compute_driver_executable()[0]
        command = [str(node), "-e", _UNPACK, str(packed / f"{name}.br"), str(work / name)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        if name.endswith(".tar"):
            npm.unpack(work / name, work)
            (work / name).unlink()
    (work / "chromium").chmod(0o755)
    (work / "fonts.conf").write_text(_FONTS.format(folder=folder))
    work.rename(folder)
    for archive in packed.glob("*.br"):
        archive.unlink()  # 70 MB
