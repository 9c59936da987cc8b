-- Write one message and return its position in the stream.
--
-- The promise: atomic; a retry of a write that succeeded returns the first position, whatever
-- `expected_version` is; a wrong expected version writes nothing. How it is kept: the stream is locked
-- before its version is read in a separate statement, so that under READ COMMITTED the version is the
-- newest. The id is looked up only if the write would fail otherwise.
--
-- Errors have Message DB's texts and SQLSTATEs, since its clients match on them; the facts and our
-- own code are JSON in the detail.
--
-- This is the hottest path, and each expression costs something in each transaction. So there are few of
-- them, and functions are called by assignment, which PostgreSQL evaluates in place; `perform` would
-- run a query.

create or replace function message_store.write_message(
  id varchar,
  stream_name varchar,
  "type" varchar,
  data jsonb,
  metadata jsonb default null,
  expected_version bigint default null
)
returns bigint language plpgsql
as $$
#variable_conflict use_column
declare
  stream_version bigint;
  written record;
  locked text;
begin
  locked := penstock.lock_stream_for_write(write_message.stream_name);

  stream_version := coalesce((
    select m.position from message_store.messages m
    where m.stream_name = write_message.stream_name
    order by m.position desc limit 1), -1);

  if write_message.expected_version is null
      or write_message.expected_version = stream_version then
    insert into message_store.messages (id, stream_name, position, type, data, metadata)
    values (
      write_message.id::uuid,
      write_message.stream_name,
      stream_version + 1,
      write_message.type,
      write_message.data,
      write_message.metadata
    )
    on conflict (id) do nothing;

    if found then
      return stream_version + 1;
    end if;
  end if;

  select m.stream_name, m.position into written
  from message_store.messages m
  where m.id = write_message.id::uuid;

  if written.stream_name = write_message.stream_name then
    perform penstock.count_lock();
    return written.position;
  elsif written.stream_name is not null and (write_message.expected_version is null
      or write_message.expected_version = stream_version) then
    raise exception using
      errcode = 'unique_violation',
      constraint = 'messages_id',
      message = 'duplicate key value violates unique constraint "messages_id"',
      detail = jsonb_build_object(
        'code', 'PS002', 'id', write_message.id::uuid, 'stream_name', written.stream_name);
  else
    raise exception 'Wrong expected version: % (Stream: %, Stream Version: %)',
      write_message.expected_version, write_message.stream_name, stream_version
    using
      detail = jsonb_build_object(
        'code', 'PS001', 'stream_name', write_message.stream_name,
        'expected', write_message.expected_version, 'actual', stream_version);
  end if;
end
$$;
