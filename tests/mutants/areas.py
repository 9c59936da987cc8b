"""All mutants, by the area of `docs/promises.md` that lists them."""

from __future__ import annotations

from tests.mutants.mechanisms import (
    announcements,
    archive,
    archived_attributes,
    attributes,
    batches,
    consumers,
    decisions,
    flat_calls,
    groups,
    guards,
    kept_states,
    message_db,
    outbox_leases,
    outbox_once,
    parallel_writers,
    pipeline_steps,
    removal,
    repeated_writes,
    restored_logs,
    retention,
    safety_look,
    spark_reads,
    spark_staging,
    streams,
    watermark,
)
from tests.mutants.mutant import Mutant

AREAS: dict[str, tuple[Mutant, ...]] = {
    "complete": (
        *watermark.MUTANTS,
        *announcements.MUTANTS,
        *restored_logs.MUTANTS,
        *retention.MUTANTS,
        *archive.MUTANTS,
    ),
    "consistent": (
        *decisions.MUTANTS,
        *kept_states.MUTANTS,
        *guards.MUTANTS,
        *attributes.MUTANTS,
        *archived_attributes.MUTANTS,
        *streams.MUTANTS,
        *repeated_writes.MUTANTS,
        *batches.MUTANTS,
    ),
    "parallel": parallel_writers.MUTANTS,
    "exactly_once": (*outbox_once.MUTANTS, *groups.EXACTLY_ONCE, *consumers.EXACTLY_ONCE),
    "spark": (*spark_staging.MUTANTS, *pipeline_steps.MUTANTS, *spark_reads.MUTANTS),
    "at_least_once": (
        *outbox_leases.MUTANTS,
        *groups.AT_LEAST_ONCE,
        *consumers.AT_LEAST_ONCE,
        *removal.MUTANTS,
        *safety_look.MUTANTS,
    ),
    "flat": (*flat_calls.MUTANTS, *kept_states.FLAT, *groups.FLAT, *consumers.FLAT),
    "drop_in": message_db.MUTANTS,
}
MUTANTS: dict[str, Mutant] = {one.name: one for area in AREAS.values() for one in area}
