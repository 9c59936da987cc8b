-- The schema of Message DB. Everything in this folder is what Message DB 1.3 has, in our own words:
-- a client written for it sees the same names, the same argument names and the same errors.

create schema if not exists message_store;
