"""What the tests of pipelines share."""

from tests.spark.fixtures import java, shared_store, shared_url, spark, writer

__all__ = ["java", "shared_store", "shared_url", "spark", "writer"]
