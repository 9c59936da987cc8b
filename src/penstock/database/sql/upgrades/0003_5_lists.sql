-- Lists of categories, consumers and sessions come in pages.

drop function if exists penstock.categories();
drop function if exists penstock.consumers(bigint);
drop function if exists penstock.list_sessions(bigint);
drop function if exists penstock.stored_positions();
drop function if exists penstock.streams_of_consumers(text);
drop function if exists penstock.streams_within(varchar);
