"""Found by Spark, which looks for modules named `pyspark_…`: makes `format("penstock")` work."""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
