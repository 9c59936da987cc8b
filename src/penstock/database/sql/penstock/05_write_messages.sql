-- Write several messages to one stream, in one call, and return their positions in order.
--
-- All or none. A retry with the same ids returns the first result, whatever `expected_version` is; a
-- batch of which only some ids exist is refused.

create or replace function penstock.write_messages(
  stream_name varchar,
  ids uuid[],
  types text[],
  data text[],
  metadata text[],
  expected_version bigint default null
)
returns bigint[] language plpgsql
as $$
#variable_conflict use_column
declare
  stream_version bigint;
  inserted bigint;
  written record;
begin
  perform penstock.lock_stream(write_messages.stream_name);

  stream_version := coalesce(message_store.stream_version(write_messages.stream_name), -1);

  if write_messages.expected_version is null
      or write_messages.expected_version = stream_version then
    insert into message_store.messages (id, stream_name, position, type, data, metadata)
    select m.id, write_messages.stream_name, stream_version + m.ordinality, m.type,
      m.data::jsonb, m.metadata::jsonb
    from unnest(
        write_messages.ids, write_messages.types, write_messages.data, write_messages.metadata)
      with ordinality as m(id, type, data, metadata, ordinality)
    order by m.ordinality
    on conflict (id) do nothing;

    get diagnostics inserted = row_count;
    if inserted = cardinality(write_messages.ids) then
      return array(
        select generate_series(stream_version + 1, stream_version + inserted) order by 1);
    end if;
  end if;

  -- the messages of this call that stood in the log before it
  select count(*) as count,
    count(*) filter (where m.stream_name = write_messages.stream_name) as in_stream,
    array_agg(m.position order by i.ordinality) as positions,
    (array_agg(m.id order by i.ordinality))[1] as id,
    (array_agg(m.stream_name order by i.ordinality))[1] as stream_name
  into written
  from unnest(write_messages.ids) with ordinality as i(id, ordinality)
  join message_store.messages m on m.id = i.id
  where m.stream_name <> write_messages.stream_name or m.position <= stream_version;

  if written.in_stream = cardinality(write_messages.ids) then
    return written.positions;
  elsif inserted is not null then
    raise exception using
      errcode = 'PS002',
      message = format('message %s exists already, in stream %s, and others of this batch do not',
        written.id, written.stream_name),
      detail = jsonb_build_object('id', written.id, 'stream_name', written.stream_name);
  else
    raise exception using
      errcode = 'PS001',
      message = format('Wrong expected version: %s (Stream: %s, Stream Version: %s)',
        write_messages.expected_version, write_messages.stream_name, stream_version),
      detail = jsonb_build_object(
        'stream_name', write_messages.stream_name,
        'expected', write_messages.expected_version, 'actual', stream_version);
  end if;
end
$$;

-- Write messages to many streams, in one call, and return their positions in order.
--
-- All or none, as above: a retry with the same ids returns the first result, whatever the expected
-- versions are. Streams are locked in the order of their keys; from 500 on, their categories instead.

create or replace function penstock.write_many(
  stream_names varchar[],
  ids uuid[],
  types text[],
  data text[],
  metadata text[],
  expected_streams varchar[] default '{}',
  expected_versions bigint[] default '{}'
)
returns bigint[] language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  streams constant varchar[] := array(select distinct s from unnest(stream_names) s);
  categories constant varchar[] := array(
    select distinct message_store.category(s) from unnest(streams) s);
  versions bigint[];                       -- for each message, its stream's version before this call
  positions bigint[];
  wrong record;
  written record;
  inserted bigint;
begin
  if penstock.counted_locks() + cardinality(streams) >= 500
      and penstock.held_locks() + cardinality(streams) >= 500 then
    perform penstock.lock_categories(categories);
  else
    perform penstock.lock_streams(categories, streams);
  end if;

  with version as materialized (
    -- each stream that is written to, and its version
    select s.stream_name, coalesce((
      select m.position from message_store.messages m
      where m.stream_name = s.stream_name order by m.position desc limit 1), -1) as version
    from unnest(streams) as s(stream_name)
  ), placed as (
    -- each message, and where in its stream it comes
    select n.ordinality, v.version, v.version + row_number() over (
      partition by n.stream_name order by n.ordinality) as position
    from unnest(stream_names) with ordinality as n(stream_name, ordinality)
    join version v on v.stream_name = n.stream_name
  )
  select array_agg(p.version order by p.ordinality), array_agg(p.position order by p.ordinality)
  into versions, positions
  from placed p;

  select e.stream_name, e.expected, v.version into wrong
  from unnest(expected_streams, expected_versions) as e(stream_name, expected)
  join unnest(stream_names, versions) as v(stream_name, version) on v.stream_name = e.stream_name
  where e.expected <> v.version
  limit 1;

  if wrong.stream_name is null then
    insert into message_store.messages (id, stream_name, position, type, data, metadata)
    select m.id, m.stream_name, m.position, m.type, m.data::jsonb, m.metadata::jsonb
    from unnest(ids, stream_names, positions, types, write_many.data, write_many.metadata)
      with ordinality as m(id, stream_name, position, type, data, metadata, ordinality)
    order by m.ordinality
    on conflict (id) do nothing;

    get diagnostics inserted = row_count;
    if inserted = cardinality(ids) then
      return positions;
    end if;
  end if;

  -- the messages of this call that stood in the log before it
  select count(*) filter (where m.stream_name = n.stream_name) as in_stream,
    array_agg(m.position order by n.ordinality) as positions,
    (array_agg(m.id order by n.ordinality))[1] as id,
    (array_agg(m.stream_name order by n.ordinality))[1] as stream_name
  into written
  from unnest(ids, stream_names, versions) with ordinality as n(id, stream_name, version, ordinality)
  join message_store.messages m on m.id = n.id
  where m.stream_name <> n.stream_name or m.position <= n.version;

  if written.in_stream = cardinality(ids) then
    return written.positions;
  elsif inserted is not null then
    raise exception using
      errcode = 'PS002',
      message = format('message %s exists already, in stream %s, and others of this batch do not',
        written.id, written.stream_name),
      detail = jsonb_build_object('id', written.id, 'stream_name', written.stream_name);
  end if;
  perform penstock.check_version(wrong.stream_name, wrong.expected, wrong.version);
end
$$;
