"""The actors of the chaos test: each file is one, and its `main` is all that a process of it does.

Each records in its ledger what it tries, and the result that it got.
"""
