"""Data pipelines over the log, on Spark. Needs `pip install 'penstock-log[spark]'`.

A `Pipeline` declares sources, streams, sinks and projections. `pipe.run(store)`, a `Runner` or
`penstock run FILE` runs it, exactly once.
"""

from penstock.extras import from_extra

with from_extra("spark"):
    from penstock.pipeline.delivery import Delivery
    from penstock.pipeline.graph import Latest, Pipeline, Processor
    from penstock.pipeline.loading import load
    from penstock.pipeline.messages import messages
    from penstock.pipeline.processor_loop import Progress, Timing
    from penstock.pipeline.runner import Runner, Summary
    from penstock.pipeline.step import StepReport

__all__ = [
    "Delivery",
    "Latest",
    "Pipeline",
    "Processor",
    "Progress",
    "Runner",
    "StepReport",
    "Summary",
    "Timing",
    "load",
    "messages",
]
