"""Promise 2: no decision on a stale view is committed."""

from __future__ import annotations

from tests.mutants import attributes, guards, streams
from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = (*guards.MUTANTS, *attributes.MUTANTS, *streams.MUTANTS)

EXCUSES: tuple[Excuse, ...] = ()
