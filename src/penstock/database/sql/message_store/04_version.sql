-- The version of Message DB whose interface this is.

create or replace function message_store.message_store_version()
returns varchar language sql
as $$ select '1.3.0'::varchar $$;
