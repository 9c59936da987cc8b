"""Benchmarks: Penstock beside its alternatives, in one run, on one server.

`python -m bench` measures all that `bench.comparisons` lists, prints a table for each and keeps the
figures, and charts of them, in `bench/results/`; `--quick` does the same in a few minutes;
`--report` writes `docs/benchmarks.md` from the newest results.

What counts is the ratio. The machine may be shared and noisy, so contenders take turns in short
slices, round after round, and each round gives one ratio of neighbours; the median of those is
reported with the middle half of them, never a single number from a single run.
"""
