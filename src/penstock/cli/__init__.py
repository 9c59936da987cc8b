"""The `penstock` command: one file per command, or per small group of them.

`app.py` lists the commands. `target.py` finds the database that a command is about, `failing.py`
turns errors into one clear line and an exit code, `printing.py` shows things to people.
"""

import sys

from penstock.extras import from_extra


def main() -> None:
    """Run the `penstock` command with the arguments of this process."""
    try:
        with from_extra("cli"):
            from penstock.cli.app import run
    except ModuleNotFoundError as error:
        sys.exit(f"penstock: {error}")
    run()
