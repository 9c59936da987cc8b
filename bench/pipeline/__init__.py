"""What `bench.comparisons.pipeline` measures: pipelines from log to log, run by a `Runner`.

The pipelines are made anew for every slice, under a name of their own, so that each begins at the
beginning. What they publish goes to a category that is theirs alone.
"""
