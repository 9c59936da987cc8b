"""The data pipeline over the log, on Spark. Needs `pip install penstock[spark]`."""

from penstock.pipeline.session import session

__all__ = ["session"]
