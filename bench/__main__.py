"""`python -m bench [--quick] [NAME ...]`, `--resume FILE`, `--report [FILE]`, and `--add FILE`."""

from __future__ import annotations

import argparse
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from bench import report, results
from bench.comparisons import COMPARISONS, Compare
from bench.measuring import FULL, QUICK, Effort, done_telling, tell
from bench.printing import as_text, setting_line, verdicts
from bench.results import Comparison, Run
from bench.server import Server, running
from bench.spark import driver


def main() -> None:
    """Compare, print and keep; or write the page from what was kept."""
    arguments = _parsed()
    if arguments.report is not None:
        source = arguments.report or results.newest()
        print(f"wrote {os.path.relpath(report.write(source))} from {os.path.relpath(source)}")
        return
    if arguments.add is not None:
        print(f"wrote {os.path.relpath(report.add(arguments.add))}")
        return
    _forget_settings_from_outside()
    if arguments.resume:
        path, kept = arguments.resume, results.load(arguments.resume)
    else:
        began = datetime.now(UTC)
        kind = "part" if arguments.names else "quick" if arguments.quick else "full"
        path, kept = results.file_of(began, kind), None
        _say(f"figures go to {os.path.relpath(path)}, comparison by comparison")
    names = arguments.names or list(COMPARISONS)
    run = _measure_all(path, kept, names, quick=arguments.quick)
    print(verdicts(run))
    print(f"{run.seconds / 60:.0f} min in all; figures in {os.path.relpath(path)}")
    if run.failed:
        raise SystemExit(f"failed: {', '.join(run.failed)}; to try them again: --resume {path}")


def _measure_all(path: Path, kept: Run | None, names: list[str], *, quick: bool) -> Run:
    """Compare all parts on a server of their own, or those that a kept run has left."""
    tell("starting PostgreSQL")
    with running() as server:
        run = _resumed(kept) if kept else _begun(server, names, quick=quick)
        done_telling()
        _say(", ".join(f"{name} {value}" for name, value in run.machine.items()))
        _say("\n".join(setting_line(one) for one in run.settings))
        todo, clock = run.left, time.monotonic() - run.seconds
        for number, part in enumerate(todo, start=1):
            _say(f"\n[{_elapsed(clock)}] {part}, {number} of {len(todo)}\n")
            run = _with_part(run, part, server, path, clock)
    return run


def _begun(server: Server, names: list[str], *, quick: bool) -> Run:
    versions = {**server.versions(), **driver.versions()}
    began, machine, settings = datetime.now(UTC), server.machine(), server.settings()
    return Run(began, quick, 0.0, machine, versions, settings, names)


def _resumed(kept: Run) -> Run:
    """Return a kept run without the parts that are not whole: they are measured again."""
    whole = [one for one in kept.comparisons if one.part in kept.done]
    went_on = [*kept.resumed, datetime.now(UTC)]
    return replace(kept, comparisons=whole, failed={}, resumed=went_on)


def _with_part(
    run: Run,
    part: str,
    server: Server,
    path: Path,
    clock: float,
    comparisons: Mapping[str, Compare] = COMPARISONS,
) -> Run:
    """Return the run with one part more, measured or failed; keep it after each comparison."""
    try:
        for comparison in _compared(part, comparisons[part], server, QUICK if run.quick else FULL):
            run = replace(run, comparisons=[*run.comparisons, comparison])
            run = _kept(run, path, clock)
        run = replace(run, done=[*run.done, part])
    except Exception as error:  # the other parts go on
        done_telling()
        traceback.print_exc()
        what = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        run = replace(run, failed={**run.failed, part: what})
    return _kept(run, path, clock)


def _compared(part: str, compare: Compare, server: Server, effort: Effort) -> Iterator[Comparison]:
    """Yield the comparisons of a part, each with what the disk did before and after it."""
    tell(f"{part}: making the databases")
    measuring = iter(compare(server, effort))
    while True:
        before = server.sync_ms()
        comparison = next(measuring, None)
        if comparison is None:
            return
        comparison = replace(comparison, part=part, sync_ms=[before, server.sync_ms()])
        done_telling()
        _say(as_text(comparison))
        yield comparison


def _kept(run: Run, path: Path, clock: float) -> Run:
    """Write the run to its file, its comparisons in the order of their parts."""
    in_order = sorted(run.comparisons, key=lambda one: run.parts.index(one.part))
    run = replace(run, comparisons=in_order, seconds=time.monotonic() - clock)
    run.save(path)
    return run


def _say(text: str) -> None:
    print(text, flush=True)


def _elapsed(clock: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - clock), 60)
    return f"{minutes}:{seconds:02}"


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(COMPARISONS)}")
    parser.add_argument("--quick", action="store_true", help="a few minutes in all")
    parser.add_argument(
        "--resume",
        metavar="FILE",
        type=Path,
        help="go on with a run that broke off: measure the parts that it has not, or that failed",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        nargs="?",
        const="",
        type=lambda given: Path(given) if given else "",
        help="write docs/benchmarks.md from this run, or from the newest full one",
    )
    parser.add_argument(
        "--add",
        metavar="FILE",
        type=Path,
        help="write docs/benchmarks.md again with the parts that this run has measured",
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
