"""What `bench.comparisons.spark` measures: the log as a data source, beside Spark's own JDBC.

One Spark session of two cores serves both, and both reach the server over TCP: the JDBC driver
knows nothing else. What is read goes to Spark's `noop` sink, which takes every row and keeps none.
"""
