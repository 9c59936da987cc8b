"""Benchmarks: Penstock beside its alternatives, in one run, on one server.

`python -m bench` measures all that `bench.comparisons` lists, prints a table for each and keeps the
figures in `bench/results/`, comparison by comparison; `--quick` does the same in a few minutes;
`--resume FILE` goes on with a run that broke off; `--report` copies the newest full run to
`docs/data/benchmarks.json` and writes `docs/benchmarks.md` and its charts from that file alone.

What counts is the ratio. The machine may be shared and noisy, so contenders take turns in short
slices, round after round, and each round gives one ratio of neighbours; the median of those is
reported with the middle half of them and with the number of rounds in which the aim was met, never
a single number from a single run.
"""
