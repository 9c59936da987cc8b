"""The data pipeline over the log, on Spark. Needs `pip install 'penstock-log[spark]'`.

`session()` starts a Spark that is ready for `format("penstock")`. A `Pipeline` declares sources,
streams, sinks and projections; `penstock run FILE` or a `Runner` runs it, exactly once.
"""

from penstock.extras import from_extra

with from_extra("spark"):
    from penstock.pipeline.delivery import Delivery
    from penstock.pipeline.graph import Latest, Pipeline, Processor
    from penstock.pipeline.loading import load
    from penstock.pipeline.runner import Progress, Runner, Summary
    from penstock.pipeline.session import session
    from penstock.pipeline.step import StepReport
    from penstock.pipeline.threads import on_spark

__all__ = [
    "Delivery",
    "Latest",
    "Pipeline",
    "Processor",
    "Progress",
    "Runner",
    "StepReport",
    "Summary",
    "load",
    "on_spark",
    "session",
]
