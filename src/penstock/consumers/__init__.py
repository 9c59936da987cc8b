"""Readers that keep their place: category consumers and their positions, queues and sessions."""
