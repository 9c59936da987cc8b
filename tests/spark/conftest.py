"""What the tests of the connector share."""

from tests.spark.fixtures import shared_store, shared_url, writer

__all__ = ["shared_store", "shared_url", "writer"]
