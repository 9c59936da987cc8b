"""All mutants, by the area of `docs/promises.md` that lists them."""

from __future__ import annotations

from tests.mutants import (
    at_least_once,
    complete,
    consistent,
    drop_in,
    exactly_once,
    flat,
    parallel,
    spark,
)
from tests.mutants.mutant import Excuse, Mutant

AREAS: dict[str, tuple[Mutant, ...]] = {
    "complete": complete.MUTANTS,
    "consistent": consistent.MUTANTS,
    "parallel": parallel.MUTANTS,
    "exactly_once": exactly_once.MUTANTS,
    "spark": spark.MUTANTS,
    "at_least_once": at_least_once.MUTANTS,
    "flat": flat.MUTANTS,
    "drop_in": drop_in.MUTANTS,
}
MUTANTS: dict[str, Mutant] = {one.name: one for area in AREAS.values() for one in area}
EXCUSES: tuple[Excuse, ...] = (
    *complete.EXCUSES,
    *consistent.EXCUSES,
    *parallel.EXCUSES,
    *exactly_once.EXCUSES,
    *spark.EXCUSES,
    *at_least_once.EXCUSES,
    *flat.EXCUSES,
    *drop_in.EXCUSES,
)
