"""The demo as a user runs it, with fewer orders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ORDERS = 2_000


def test_it_recovers_and_every_result_is_right(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("penstock")
    command = [str(program), "demo", "--orders", str(ORDERS)]

    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "WRONG" not in ended.stdout
    assert f"{ORDERS:,} orders, killed with -9 after" in ended.stdout
    assert (tmp_path / "penstock-demo.html").stat().st_size > 10_000
