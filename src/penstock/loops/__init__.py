"""What every loop shares: how it stops, waits, tries again, and logs an outage."""
