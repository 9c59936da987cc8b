"""Promise 2: no decision on a stale view is committed."""

from __future__ import annotations

from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = ()

EXCUSES: tuple[Excuse, ...] = ()
