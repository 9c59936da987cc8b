"""The pipeline: its image has each account message once and in order, and its tables add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker.complaint import PIPELINE, Complaint
from tests.chaos.checker.consumers import compare
from tests.chaos.checker.evidence import Evidence
from tests.chaos.names import ACCOUNT, IMAGE


def check_pipeline(evidence: Evidence) -> Iterator[Complaint]:
    if not list(evidence.lives("pipeline")):
        return
    accounts, images = evidence.category(ACCOUNT), evidence.category(IMAGE)
    wanted = Counter(row.at for row in accounts)
    for one in compare("the image", wanted, Counter(row.data["source"] for row in images)):
        yield Complaint(PIPELINE, f"{one.kind}: {one.text}")
    key = {row.at: row.data["key"] for row in accounts}
    for row in images:
        if key.get(row.data["source"], row.data["key"]) != row.data["key"]:
            yield Complaint(PIPELINE, f"the image of {row.data['source']} is of another")
    if any(earlier.data["source"] > later.data["source"] for earlier, later in pairwise(images)):
        yield Complaint(PIPELINE, "the image is in another order")
    counts = Counter(row.stream for row in accounts)
    if evidence.totals != dict(counts):
        yield Complaint(PIPELINE, f"totals are {evidence.totals}, not {dict(counts)}")
    last = {row.stream: row.data["key"] for row in accounts}
    states = {stream: (count, last[stream]) for stream, count in counts.items()}
    if evidence.states != states:
        yield Complaint(PIPELINE, f"states are {evidence.states}, not {states}")
