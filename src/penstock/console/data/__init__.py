"""What the console shows and does, without the web.

Each screen has a module here. Its functions take an `AsyncStore` and return frozen dataclasses,
which msgspec encodes as JSON. The command line uses the same functions where it shows the same.

The promise: a call costs the database a few index look-ups, or a scan of a fixed number of rows,
however long the log is. Lists come in pages (`Page`). A count ends at a limit (`Count`). Where
something is looked for that no index finds, a fixed number of rows is looked at, and the result
says so.
"""
