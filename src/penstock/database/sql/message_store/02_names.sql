-- The grammar of stream names: {category}[:{type}[+{type}...]][-{id}].
--
-- These are plain expressions in SQL functions, so that the planner puts them straight into the
-- query and the index instead of calling them: one insert evaluates `category` twice.

create or replace function message_store.category(stream_name varchar)
returns varchar language sql immutable parallel safe
as $$ select split_part(stream_name, '-', 1)::varchar $$;

create or replace function message_store.is_category(stream_name varchar)
returns boolean language sql immutable parallel safe
as $$ select coalesce(strpos(stream_name, '-'), 0) = 0 $$;  -- true for NULL, as there

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

-- A session keeps an index's expressions as it first read them. Where `category` has just taken the
-- place of Message DB's, sessions that are connected would no longer find the indexes that use it:
-- a change of nothing (no index has that option) makes them read again.
do $$
declare
  index regclass;
begin
  for index in
    select i.indexrelid from pg_catalog.pg_index i
    where i.indrelid = to_regclass('message_store.messages') and i.indexprs is not null
  loop
    execute format('alter index %s reset (parallel_workers)', index);
  end loop;
end
$$;
