"""The `penstock` command: one file per command or group of commands.

`app.py` lists the commands. `target.py` has the options that commands share and selects the
database, `errors.py` reports an error as one line and an exit code, `printing.py` formats output.
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
