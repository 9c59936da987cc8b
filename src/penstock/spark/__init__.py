"""The Spark connector. Needs `pip install 'penstock-log[spark]'`.

`session()` starts a Spark that can use `format("penstock")`, the data source and sink.
`Frames(store, spark)` reads and writes the messages of a store as frames.
"""

from penstock.extras import from_extra

with from_extra("spark"):
    from penstock.spark.session import on_spark, session
    from penstock.spark.store_frames import FrameReader, Frames

__all__ = ["FrameReader", "Frames", "on_spark", "session"]
