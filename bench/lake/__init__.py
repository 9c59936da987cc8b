"""Iceberg tables: a step beside `write.parquet`, and what a commit costs as they pile up."""
