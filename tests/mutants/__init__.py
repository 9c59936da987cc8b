"""Mutants: copies of Penstock from which one mechanism has been removed.

A promise rests on mechanisms: a trigger, a lock, a check, a token, a compare-and-swap. A test is
evidence for a promise only if it fails without the mechanism. `make mutants` removes one mechanism
at a time from a copy of the package, runs the tests that claim it, and records which of them
failed, and how. `docs/promises.md` lists what it recorded.

    python -m tests.mutants                  all mutants, then docs/data/mutants.json and the page
    python -m tests.mutants watermark ...    these mutants only; writes nothing
"""
