-- The grammar of stream names: {category}[:{type}[+{type}...]][-{id}].
--
-- These are SQL functions of one expression, which the planner inlines: one insert evaluates `category`
-- twice.

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

-- A session caches the expressions of an index. Where `category` has just replaced Message DB's, connected
-- sessions would no longer match their queries with the indexes that use it. Resetting an option, which
-- no index has, invalidates that cache.
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
