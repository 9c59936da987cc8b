"""Reading the log into Spark: what to read, in which splits, and in which columns."""
