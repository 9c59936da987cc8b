"""Every lock, trigger and refusal in the SQL: each is removed by a mutant, or has a reason here.

A promise kept by SQL is kept by one of these. The test beside this file fails when a new one is
written and nobody has shown what it is good for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutants.areas import MUTANTS
from tests.mutants.mutant import SOURCE, Excuse

SQL = SOURCE / "database" / "sql"
MECHANISM = re.compile(
    r"advisory_xact_lock|\bfor (no key )?(update|share)\b|\block table\b"
    r"|\bcreate or replace trigger\b|\berrcode = 'PS"
)
EXCUSES = (
    Excuse(
        "penstock/33_groups.sql",
        "errcode = 'PS044'",
        "a better message: without it a claim of an unknown group fails on a constraint",
    ),
    Excuse(
        "penstock/52_pipelines.sql",
        "  for update;",
        "a step of an archive is counted: the runner's lock keeps another from counting too",
    ),
    Excuse(
        "penstock/41_joins.sql",
        "'PS067'",
        "a better message: refuse_ring refuses the wait of a join as its own step, too",
    ),
)


@dataclass(frozen=True)
class Site:
    """A line of SQL that is a mechanism, or a part of one."""

    file: str  # below `src/penstock`
    number: int
    line: str


def sites() -> Iterator[Site]:
    """Every mechanism in the SQL that is installed."""
    for path in sorted([*SQL.glob("message_store/*.sql"), *SQL.glob("penstock/*.sql")]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if MECHANISM.search(line.partition("--")[0]):
                yield Site(str(path.relative_to(SOURCE)), number, line)


def needless_excuses() -> list[Excuse]:
    """The excuses that fit no line."""
    found = list(sites())
    return [one for one in EXCUSES if not any(_fits(one, site) for site in found)]


def uncovered() -> list[Site]:
    """The mechanisms that no mutant removes and that have no reason here."""
    return [one for one in sites() if not _is_mutated(one) and not _is_excused(one)]


def _is_mutated(site: Site) -> bool:
    """Whether an edit of some mutant changes that line."""
    text = (SOURCE / site.file).read_text(encoding="utf-8")
    for mutant in MUTANTS.values():
        for edit in mutant.edits:
            if edit.file != site.file:
                continue
            for found in re.finditer(re.escape(edit.old), text):
                first = text.count("\n", 0, found.start()) + 1
                if first <= site.number <= first + edit.old.count("\n"):
                    return True
    return False


def _is_excused(site: Site) -> bool:
    return any(_fits(excuse, site) for excuse in EXCUSES)


def _fits(excuse: Excuse, site: Site) -> bool:
    return site.file.endswith(excuse.file) and excuse.line in site.line
