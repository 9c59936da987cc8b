-- Write several messages to one stream, in one call, and return their positions in order.
--
-- All or none. A retry with the same ids returns the first result, also past `expected_version`;
-- a batch of which only some ids exist is refused.

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
