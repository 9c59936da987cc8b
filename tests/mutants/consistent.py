"""Promise 2: no decision on a stale view is committed."""

from __future__ import annotations

from tests.mutants import attributes, decisions, guards, repeated, streams
from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = (
    *decisions.MUTANTS,
    *guards.MUTANTS,
    *attributes.MUTANTS,
    *streams.MUTANTS,
    *repeated.MUTANTS,
)

EXCUSES: tuple[Excuse, ...] = ()
