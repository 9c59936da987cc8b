-- The grammar of stream names: {category}[:{type}[+{type}...]][-{id}].
--
-- These are plain expressions in SQL functions, so that the planner puts them straight into the
-- query and the index instead of calling them: one insert evaluates `category` twice.

create or replace function message_store.category(stream_name varchar)
returns varchar language sql immutable parallel safe
as $$ select split_part(stream_name, '-', 1)::varchar $$;

create or replace function message_store.is_category(stream_name varchar)
returns boolean language sql immutable parallel safe
as $$ select strpos(stream_name, '-') = 0 $$;

create or replace function message_store.id(stream_name varchar)
returns varchar language sql immutable parallel safe
as $$
  select case
    when strpos(stream_name, '-') > 0 then substring(stream_name, strpos(stream_name, '-') + 1)
  end::varchar
$$;

-- Ends at the id's first `+` (Message DB's compound ids), else at its first `-` (the specification).
create or replace function message_store.cardinal_id(stream_name varchar)
returns varchar language sql immutable parallel safe
as $$
  select case
    when strpos(message_store.id(stream_name), '+') > 0
      then split_part(message_store.id(stream_name), '+', 1)
    else split_part(message_store.id(stream_name), '-', 1)
  end::varchar
$$;

create or replace function message_store.hash_64(value varchar)
returns bigint language sql immutable parallel safe
as $$ select ('x' || left(md5(value), 16))::bit(64)::bigint $$;
