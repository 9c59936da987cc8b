"""Found by Spark, which looks for modules named `pyspark_…`: makes `format("penstock")` work."""

from penstock.spark.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
