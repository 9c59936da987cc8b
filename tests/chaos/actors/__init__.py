"""The actors of the chaos test: each file is a program, `python -m tests.chaos.actors.writer ...`.

Each notes in its ledger what it tries, and what it was told came of it.
"""
