"""`penstock demo`: an example shop that uses every part of Penstock, and checks its result.

Spark jobs, started by the outbox, extract files of customers, products and orders into the log. A
join starts the transformation when all are done: a pipeline that turns orders into invoices. It is
killed and resumed. Workers reserve scarce products without overselling, and a projection keeps the
revenue per day. At the end, everything is computed again from the files in plain Python and
compared.
"""
