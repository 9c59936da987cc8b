"""Reading the log into Spark: planning, splits, columns, and the readers of batches and streams."""
