"""Promise 7: Message DB's clients work on Penstock, and Penstock on Message DB."""

from __future__ import annotations

from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = ()

EXCUSES: tuple[Excuse, ...] = ()
