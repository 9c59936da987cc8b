"""Operators' calls, and the values that they return."""

from penstock.admin.admin import Admin
from penstock.admin.admin_async import AsyncAdmin
from penstock.admin.backlogs import ConsumerStatus, SessionStatus
from penstock.admin.readers import HealthFigure
from penstock.consumers.parked import ParkedMessage
from penstock.groups.operations import GroupStatus, ParkedPartition
from penstock.log.decision import SnapshotStatus
from penstock.log.overview import CategorySummary, OpenWriter, Status, StreamSummary
from penstock.log.retention import Retained, SlowestReader

__all__ = [
    "Admin",
    "AsyncAdmin",
    "CategorySummary",
    "ConsumerStatus",
    "GroupStatus",
    "HealthFigure",
    "OpenWriter",
    "ParkedMessage",
    "ParkedPartition",
    "Retained",
    "SessionStatus",
    "SlowestReader",
    "SnapshotStatus",
    "Status",
    "StreamSummary",
]
