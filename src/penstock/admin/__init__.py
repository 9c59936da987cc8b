"""Operators' calls, and the values that they return."""

from penstock.admin.admin import Admin
from penstock.admin.admin_async import AsyncAdmin
from penstock.admin.readers import ConsumerStatus, HealthFigure, SessionStatus
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
