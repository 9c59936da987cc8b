"""The mutants fit the source of today, and leave no mechanism out; the page says what was found."""

from __future__ import annotations

import ast
import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import inventory, page, results
from tests.mutants.areas import AREAS, MUTANTS
from tests.mutants.mutant import ROOT, SOURCE, DoesNotApply, Mutant
from tests.mutants.results import Result


@pytest.fixture(scope="module")
def run() -> results.Run:
    return results.load()


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) == sum(len(area) for area in AREAS.values())


def test_every_mutant_changes_the_source_of_today(tmp_path: Path) -> None:
    assert [name for name, one in MUTANTS.items() if not applies(one, tmp_path / name)] == []


def test_every_test_that_claims_a_mechanism_exists() -> None:
    claims = {one.partition("[")[0] for mutant in MUTANTS.values() for one in mutant.caught_by}

    assert [one for one in sorted(claims) if not exists(one)] == []


def test_every_lock_trigger_and_refusal_is_removed_by_a_mutant_or_excused() -> None:
    missing = [f"{one.file}:{one.number}: {one.line.strip()}" for one in inventory.uncovered()]

    assert missing == []
    assert inventory.needless_excuses() == []


def test_the_run_that_is_kept_caught_every_mutant_of_today(run: results.Run) -> None:
    kept = {one.mutant: one for one in run.results}

    assert set(kept) == set(MUTANTS)
    for name, mutant in MUTANTS.items():
        assert set(kept[name].caught_by) == set(mutant.caught_by), name
        assert kept[name].is_caught, name


def test_the_page_lists_what_the_run_found(run: results.Run) -> None:
    text = page.PAGE.read_text(encoding="utf-8")

    assert page.filled(text, run) == text
    assert all(f"<!-- mutants: {area} -->" in text for area in AREAS)


class TestAResult:
    def test_is_caught_only_if_every_claim_failed(self) -> None:
        mutant = next(iter(MUTANTS.values()))
        first, *others = mutant.caught_by
        failed = dict.fromkeys(mutant.caught_by, ("failed", "why"))

        assert Result.of(mutant, failed, 1).is_caught
        assert not Result.of(mutant, {**failed, first: ("passed", "")}, 1).is_caught
        assert not Result.of(mutant, {**failed, first: ("error", "why")}, 1).is_caught
        assert not Result.of(mutant, {one: failed[one] for one in others}, 1).is_caught

    def test_one_failing_parameter_is_enough(self) -> None:
        mutant = next(iter(MUTANTS.values()))
        ends = {f"{name}[a]": ("passed", "") for name in mutant.caught_by}
        ends |= {f"{name}[b]": ("failed", "why") for name in mutant.caught_by}

        assert Result.of(mutant, ends, 1).is_caught


def applies(mutant: Mutant, folder: Path) -> bool:
    """Whether the edits of a mutant fit the source, and change it."""
    for file in {edit.file for edit in mutant.edits}:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / file, folder / file)
    try:
        for edit in mutant.edits:
            edit.apply(folder)
    except DoesNotApply as error:
        print(f"{mutant.name}: {error}")
        return False
    return all(edit.old != edit.new for edit in mutant.edits)


def exists(test: str) -> bool:
    """Whether there is a test that pytest names so."""
    file, _, path = test.partition("::")
    return path in _tests(ROOT / file)


@cache
def _tests(file: Path) -> set[str]:
    """The tests of a file, as pytest names them."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    classes = [one for one in module.body if isinstance(one, ast.ClassDef)]
    return set(_functions(module)) | {
        f"{one.name}::{test}" for one in classes for test in _functions(one)
    }


def _functions(body: ast.Module | ast.ClassDef) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        one.name for one in body.body if isinstance(one, kinds) and one.name.startswith("test_")
    ]
