"""The Spark connector. Needs `pip install 'penstock-log[spark]'`.

`session()` starts a Spark that is ready for `format("penstock")`, the data source and sink.
"""

from penstock.extras import from_extra

with from_extra("spark"):
    from penstock.spark.session import session
    from penstock.spark.threads import on_spark

__all__ = ["on_spark", "session"]
