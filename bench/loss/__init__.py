"""The loss test: does a reader that tails the log while many write get every message?

A sequence hands out positions before transactions commit, so they commit out of order. A reader
that has gone past a position before the message there was committed never sees that message. The
same writers and readers run here on each side:

- `ours`: Penstock, read by `$all`;
- `message_db`: the genuine Message DB, read by global position over the whole log;
- `message_db_categories`: the same, read category by category with its own function;
- `recorder`: eventsourcing's PostgreSQL application recorder, as it comes;
- `recorder_functions`: the same with its setting POSTGRES_ENABLE_DB_FUNCTIONS.

`python -m bench.loss.race SIDE URL SECONDS` runs one and prints what was missed.
"""
