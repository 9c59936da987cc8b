"""The actors of the chaos test: each file is one, and its `main` is all that a process of it does.

Each notes in its ledger what it tries, and what it was told came of it.
"""
