"""The checker: decides from the log, the tables and the actors' ledgers alone how a run went.

It is plain SQL and Python, and shares nothing with the actors, nor with Penstock, but names.
"""

from tests.chaos.checker.complaint import Complaint
from tests.chaos.checker.evidence import Evidence, JoinRow, OutboxRow, Row, gather
from tests.chaos.checker.verdict import Verdict, judge

__all__ = [
    "Complaint",
    "Evidence",
    "JoinRow",
    "OutboxRow",
    "Row",
    "Verdict",
    "gather",
    "judge",
]
