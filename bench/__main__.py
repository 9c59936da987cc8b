"""`python -m bench [--quick] [NAME ...]`, and `python -m bench --report [RESULTS ...]`."""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from bench import report
from bench.comparisons import COMPARISONS
from bench.measuring import FULL, QUICK, Effort, done_telling, tell
from bench.printing import as_text, verdicts
from bench.results import Comparison, Run, joined, newest
from bench.server import SETTINGS, running


def main() -> None:
    """Measure, print and keep; or write the page from what was kept."""
    arguments = _parsed()
    if arguments.report is not None:
        results = joined(arguments.report) if arguments.report else newest()
        print(f"wrote {os.path.relpath(report.write(results))}")
        return
    _forget_settings_from_outside()
    run = measured(arguments.names or list(COMPARISONS), QUICK if arguments.quick else FULL)
    print(verdicts(run))
    path = run.save(whole=not arguments.names)
    print(f"{run.seconds:.0f} s in all; figures in {os.path.relpath(path)}")
    for chart in report.draw(path, path.with_suffix("")):
        print(f"chart in {os.path.relpath(chart)}")


def measured(names: list[str], effort: Effort) -> Run:
    """Measure these comparisons on a server of their own, and print each as it is done."""
    began, clock = datetime.now(UTC), time.monotonic()
    compared: list[Comparison] = []
    tell("starting PostgreSQL")
    with running() as server:
        machine = server.machine()
        done_telling()
        print(", ".join(f"{name} {value}" for name, value in machine.items()))
        print(", ".join(f"{name} = {value}" for name, value in SETTINGS.items()), end="\n\n")
        for name in names:
            tell(f"{name}: making the databases")
            for comparison in COMPARISONS[name](server, effort):
                done_telling()
                print(as_text(comparison), flush=True)
                compared.append(comparison)
    return Run(began, effort.quick, time.monotonic() - clock, machine, SETTINGS, compared)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(COMPARISONS)}")
    parser.add_argument("--quick", action="store_true", help="a few minutes in all")
    parser.add_argument(
        "--report",
        metavar="RESULTS",
        nargs="*",
        type=Path,
        help="write docs/benchmarks.md from these files, or from the newest whole run",
    )
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in COMPARISONS:
            parser.error(f"there is no comparison {name}, only {', '.join(COMPARISONS)}")
    return arguments


def _forget_settings_from_outside() -> None:
    for name in [name for name in os.environ if name.startswith(("PENSTOCK_", "PG"))]:
        del os.environ[name]


if __name__ == "__main__":
    main()
