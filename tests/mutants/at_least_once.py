"""Promise 5: work that was begun is finished, by this process or another."""

from __future__ import annotations

from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = ()

EXCUSES: tuple[Excuse, ...] = ()
