"""All mutants, by the area of `docs/promises.md` that lists them."""

from __future__ import annotations

from tests.mutants import (
    at_least_once,
    complete,
    consistent,
    consumer_mutants,
    drop_in,
    exactly_once,
    flat,
    group_mutants,
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
# To be joined with the files of these areas by whoever merges this branch.
for _more in (group_mutants, consumer_mutants):
    AREAS["at_least_once"] += _more.AT_LEAST_ONCE
    AREAS["exactly_once"] += _more.EXACTLY_ONCE
    AREAS["flat"] += _more.FLAT
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
    *group_mutants.EXCUSES,
    *consumer_mutants.EXCUSES,
)
