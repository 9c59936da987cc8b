"""The `penstock` command: one file per command, or per small group of them.

`app.py` lists the commands. `target.py` finds the database that a command is about, `failing.py`
turns errors into one clear line and an exit code, `printing.py` shows things to people.
"""

import sys


def main() -> None:
    """Run the `penstock` command with the arguments of this process."""
    try:
        from penstock.cli.app import run
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in ("typer", "rich"):
            raise
        sys.exit(
            f"penstock: the command line needs {library}, which is not installed: "
            "pip install 'penstock[cli]'"
        )
    run()
