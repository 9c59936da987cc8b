"""Queues and their sessions: offer records, poll them, commit offsets."""
