"""Writing frames to the log: rows are staged by tasks and published by the driver."""
