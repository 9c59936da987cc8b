"""The demo, `penstock demo`: a shop with the whole system at work, checked by itself at the end.

Files of customers, products and orders are extracted into the log by Spark jobs that the outbox
runs; a join tells when all of them are done and starts the transformation, a pipeline that makes
invoices of orders. It is killed in the middle and goes on. Workers reserve what is scarce and never
promise a piece twice; a projection keeps the revenue of each day. In the end everything is computed
again from the files, in plain Python, and compared.
"""
