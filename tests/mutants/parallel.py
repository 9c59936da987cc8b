"""Promise 3: independent writers do not wait for each other."""

from __future__ import annotations

from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = ()

EXCUSES: tuple[Excuse, ...] = ()
