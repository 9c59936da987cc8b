"""Promise 4, within the database: effects and progress commit together."""

from __future__ import annotations

from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = ()

EXCUSES: tuple[Excuse, ...] = ()
