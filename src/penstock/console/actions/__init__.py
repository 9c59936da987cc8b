"""What viewers may change."""
