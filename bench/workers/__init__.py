"""Scripts that enqueue and process no-op messages, one for each outbox or queue.

Each is called with a URL and `install`; or with a URL, a number of messages and a number of
workers. It prints, as JSON, how many seconds it took to enqueue and to process them.
"""
