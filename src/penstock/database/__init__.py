"""The database: an embedded server, connections, transactions, install and upgrade."""
