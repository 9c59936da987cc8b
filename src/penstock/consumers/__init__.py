"""Category consumers: handlers, positions, parked messages."""
