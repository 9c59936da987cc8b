"""Promise 4, with Spark: each delivery and each step is published once."""

from __future__ import annotations

from tests.mutants import spark_reads, spark_staging, spark_steps
from tests.mutants.mutant import Excuse, Mutant

MUTANTS: tuple[Mutant, ...] = (
    *spark_staging.MUTANTS,
    *spark_steps.MUTANTS,
    *spark_reads.MUTANTS,
)

EXCUSES: tuple[Excuse, ...] = ()
