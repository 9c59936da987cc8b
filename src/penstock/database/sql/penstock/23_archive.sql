-- The archive: old messages that are in Parquet files and not in the table any more.
--
-- The promise: at every moment each message is in exactly one place, the table or the archive. How it is kept:
-- the archive is an Iceberg table whose catalog is in this database. One transaction deletes the messages,
-- records the segment, and makes the files that hold them part of the archive. The files were written and read
-- back before.
--
-- A read of both places misses nothing: messages only ever move from the table to the archive. So the rows of
-- the table are read first, and the archive's location in a later statement. A message that is found in both was
-- moved in between, and counts once. Functions that read return such a location as their last row, a mark,
-- if the read meets the archive: its id is null, its type is the location, and its positions are the bounds
-- of the read. Clients read the archive's files, since the server cannot.
--
-- As with retention, only a prefix of a stream or category is moved, and the last message of each stream
-- stays, except of a stream that is named after its only message.

create table if not exists penstock.archive_segments (
  id bigint generated always as identity primary key,
  category text not null,
  lowest_position bigint not null,         -- global positions of its first and last message
  highest_position bigint not null,
  message_count bigint not null,
  archived_at timestamptz not null default now()
);

create index if not exists archive_segments_category
  on penstock.archive_segments (category, highest_position);
create index if not exists archive_segments_position on penstock.archive_segments (highest_position);

-- Where the catalog of the archive's table is.
create table if not exists penstock.archive_catalog (
  one_row boolean primary key default true check (one_row),
  schema_name text not null
);

-- The last position of a category, or of `$all`, in the archive; null if it holds nothing of it.
create or replace function penstock.archived_to(category varchar)
returns bigint language plpgsql volatile
set enable_seqscan = off
as $$
begin
  if category = '$all' then
    return (
      select s.highest_position from penstock.archive_segments s
      order by s.highest_position desc limit 1);
  end if;
  return (
    select s.highest_position from penstock.archive_segments s
    where s.category = archived_to.category
    order by s.highest_position desc limit 1);
end
$$;

-- The metadata file of the archive's table as it is now. SECURITY DEFINER: whoever may read the log may
-- read this, whatever the schema of the catalog.
create or replace function penstock.archive_location()
returns text language plpgsql volatile security definer set search_path = pg_catalog
as $$
declare
  catalog_schema constant text := (select c.schema_name from penstock.archive_catalog c);
  location text;
begin
  if catalog_schema is not null then
    execute format(
      'select t.metadata_location from %I.iceberg_tables t
       where t.catalog_name = ''penstock'' and t.table_namespace = ''penstock''
         and t.table_name = ''archive''', catalog_schema)
    into location;
  end if;
  if location is null then
    raise exception using errcode = 'PS090',
      message = 'messages were archived, and the archive''s table is not in the catalog',
      detail = '{}';
  end if;
  return location;
end
$$;

-- The mark of a read that meets the archive, or no row. `first` and `until` bound the read: global positions, or
-- positions in the stream if `target` is one.
create or replace function penstock.archive_mark(target varchar, first bigint, until bigint)
returns setof message_store.message language plpgsql volatile
set enable_seqscan = off
as $$
begin
  if message_store.is_category(target) then
    if (first <= penstock.archived_to(target)) is not true then
      return;
    end if;
  elsif penstock.archived_to(message_store.category(target)) is null or exists (
    select from message_store.messages m where m.stream_name = target and m.position <= first
  ) then
    return;  -- only a prefix of a stream is moved, so all that follows is in the table
  end if;
  return query
    select null::varchar, target, penstock.archive_location()::varchar, first, until, null::varchar,
      null::varchar, null::timestamp;
end
$$;

-- Refuse a read whose filter is SQL if it meets the archive.
create or replace function penstock.refuse_archived(target varchar, first bigint, filter varchar)
returns void language plpgsql volatile
as $$
begin
  if exists (select from penstock.archive_mark(target, first, null)) then
    raise exception using errcode = 'PS091',
      message = format('messages of %s from %s on are in the archive, where %s cannot be evaluated',
        target, first, filter),
      detail = jsonb_build_object('target', target, 'position', first, 'filter', filter);
  end if;
end
$$;

-- Read a stream as message_store.get_stream_messages does, with a mark at the end if it meets the archive.
create or replace function penstock.get_stream_messages(
  stream_name varchar,
  "position" bigint default 0,
  batch_size bigint default 1000,
  condition varchar default null
)
returns setof message_store.message language plpgsql set enable_sort = off
as $$
#variable_conflict use_variable
declare
  first constant bigint := coalesce(position, 0);
begin
  if condition is not null then
    return query select * from message_store.get_stream_messages(
      stream_name, first, batch_size, condition);
    perform penstock.refuse_archived(stream_name, first, condition);
    return;
  end if;
  return query
    select m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
      m.data::varchar, m.metadata::varchar, m.time
    from message_store.messages m
    where m.stream_name = get_stream_messages.stream_name and m.position >= first
    order by m.position
    limit nullif(coalesce(batch_size, 1000), -1);
  if exists (select from penstock.archive_segments) then
    return query select * from penstock.archive_mark(stream_name, first, null);
  end if;
end
$$;

-- The last message of a stream, or of one of its types, with a mark at the end if that one may be archived.
create or replace function penstock.get_last_stream_message(
  stream_name varchar,
  type varchar default null
)
returns setof message_store.message language plpgsql
as $$
#variable_conflict use_variable
begin
  return query select * from message_store.get_last_stream_message(stream_name, type);
  if not found and exists (select from penstock.archive_segments) then
    return query select * from penstock.archive_mark(stream_name, 0, null);
  end if;
end
$$;

-- Which of these messages, read from the archive, a read of a category returns: the same rules as in
-- penstock.get_category_messages. The result are their numbers, from 1.
create or replace function penstock.matching_archived(
  stream_names varchar[], metadata jsonb[], correlation varchar, member bigint, size bigint)
returns setof bigint language sql volatile
as $$
  select m.number
  from unnest(stream_names, metadata) with ordinality as m(stream_name, metadata, number)
  where (correlation is null or penstock.correlates(m.metadata, correlation))
    and (size is null or penstock.is_assigned(m.stream_name, member, size))
  order by m.number
$$;

-- A digest of messages, in the order of their positions. The client computes the same from the files.
create or replace function penstock.message_digest(
  id uuid, stream_name text, type text, "position" bigint, global_position bigint, data jsonb,
  metadata jsonb, "time" timestamp)
returns text language sql stable parallel safe
as $$
  select md5(concat_ws(E'\x1f', global_position, id, stream_name, position, type,
    coalesce(data::text, E'\x1e'), coalesce(metadata::text, E'\x1e'),
    (extract(epoch from time) * 1000000)::bigint))
$$;

-- Refuse to archive messages that the slowest consumer of the category, or of `$all`, has not read.
create or replace function penstock.refuse_unread(
  category varchar, global_bound bigint, keep_since timestamptz, position_streams varchar[])
returns void language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  slowest record;
  unread record;
begin
  select c.needs, c.reader into slowest from penstock.slowest_consumer(category, position_streams) c;
  select n.global_position, n.time into unread
  from penstock.messages_after(
    category, null, global_bound, coalesce(slowest.needs, global_bound) - 1, 1) n;
  if unread.time < keep_since at time zone 'utc' then
    raise exception using errcode = 'PS095',
      message = format('%s %s has not read messages of %s that would be archived',
        slowest.reader ->> 'kind', slowest.reader ->> 'name', category),
      detail = jsonb_build_object('category', category, 'needs', unread.global_position,
        'reader', concat_ws(' ', slowest.reader ->> 'kind', slowest.reader ->> 'name'));
  end if;
end
$$;

-- The next messages of a category that a run moves: at most `most` of them, and about 64 MB. The rules are
-- those of retention, see 22_retention.sql. Also returns how far it went, null at the end.
create or replace function penstock.messages_to_archive(
  category varchar,
  global_bound bigint,
  keep_since timestamptz,
  position_streams varchar[],
  after bigint default null,
  most bigint default 50000
)
returns table (positions bigint[], walked_to bigint)
language plpgsql volatile
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
  fitting bigint[];
begin
  select coalesce(r.going, '{}'), r.walked_to into positions, walked_to
  from penstock.removable_messages(category, 9223372036854775807, global_bound,
    keep_since, position_streams, true, after, most) r;

  fitting := array(
    select s.global_position
    from (
      select m.global_position,
        sum(pg_column_size(m.*)) over (order by m.global_position) - pg_column_size(m.*) as size_before
      from message_store.messages m where m.global_position = any (positions)
    ) s
    where s.size_before < 64 * 1024 * 1024
    order by s.global_position);
  if cardinality(fitting) < cardinality(positions) then
    positions := fitting;
    walked_to := fitting[cardinality(fitting)];
  end if;
  return next;
end
$$;

-- Delete messages that the archive holds, and record the segment. The caller adds the files to the archive's
-- table in the same transaction. Fails if the messages are not those that the files hold, or if a bulk write
-- to the category is open.
create or replace function penstock.move_to_archive(
  category varchar, positions bigint[], digest text, catalog_schema text)
returns void language plpgsql volatile security definer set search_path = pg_catalog
as $$
#variable_conflict use_variable
declare
  gone record;
begin
  if not pg_try_advisory_xact_lock_shared(message_store.hash_64(category)) then
    raise exception using errcode = 'PS092',
      message = format('the category %s is being written in bulk', category),
      detail = jsonb_build_object('category', category);
  end if;
  insert into penstock.archive_catalog (schema_name) values (catalog_schema) on conflict do nothing;
  perform penstock.keep_stubs(category, positions);
  with deleted as (
    delete from message_store.messages m where m.global_position = any (positions)
    returning m.*
  ), correlations as (
    insert into penstock.archived_correlations (digest)
    select distinct penstock.correlation_digest(category, d.metadata ->> 'correlation_id')
    from deleted d where d.metadata ? 'correlation_id'
    on conflict do nothing
  )
  select count(*) as count, min(d.global_position) as lowest, max(d.global_position) as highest,
    md5(string_agg(penstock.message_digest(
      d.id, d.stream_name, d.type, d.position, d.global_position, d.data, d.metadata, d.time),
      '' order by d.global_position)) as digest
  into gone from deleted d;
  if gone.count <> cardinality(positions) or gone.digest is distinct from digest then
    raise exception using errcode = 'PS093',
      message = format('messages of %s were changed while they were archived', category),
      detail = jsonb_build_object('category', category);
  end if;
  insert into penstock.archive_segments (category, lowest_position, highest_position, message_count)
  values (category, gone.lowest, gone.highest, gone.count);
end
$$;

-- Forget the archive of a log that was truncated. Its files stay where they are.
create or replace function penstock.forget_archive()
returns void language plpgsql volatile
as $$
declare
  catalog_schema constant text := (select c.schema_name from penstock.archive_catalog c);
begin
  delete from penstock.archive_segments;
  delete from penstock.archived_correlations;
  delete from penstock.archived_types;
  begin
    truncate penstock.archived_messages;
  exception
    when object_in_use then  -- the same statement truncates it
      delete from penstock.archived_messages;
  end;
  if catalog_schema is not null then
    execute format(
      'delete from %I.iceberg_tables t
       where t.catalog_name = ''penstock'' and t.table_namespace = ''penstock''
         and t.table_name = ''archive''', catalog_schema);
    delete from penstock.archive_catalog;
  end if;
end
$$;
