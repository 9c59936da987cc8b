-- Reading one stream. Its positions are assigned under the stream's lock, so they commit in order
-- and a reader needs no watermark.
--
-- With `enable_sort = off` rows come from the index messages_stream in its order, so that a page or the
-- last message costs the same in a stream of any length, whatever the statistics say.

create or replace function message_store.stream_version(stream_name varchar)
returns bigint language plpgsql
as $$
begin
  return (
    select max(m.position)
    from message_store.messages m
    where m.stream_name = stream_version.stream_name
  );
end
$$;

create or replace function message_store.get_stream_messages(
  stream_name varchar,
  "position" bigint default 0,
  batch_size bigint default 1000,
  condition varchar default null
)
returns setof message_store.message language plpgsql set enable_sort = off
as $$
begin
  if message_store.is_category(get_stream_messages.stream_name) then
    raise exception 'Must be a stream name: %', get_stream_messages.stream_name
    using
      detail = jsonb_build_object('code', 'PS007', 'stream_name', get_stream_messages.stream_name);
  end if;

  if get_stream_messages.condition is null then
    return query
      select m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
        m.data::varchar, m.metadata::varchar, m.time
      from message_store.messages m
      where m.stream_name = get_stream_messages.stream_name
        and m.position >= coalesce(get_stream_messages.position, 0)
      order by m.position
      limit nullif(coalesce(get_stream_messages.batch_size, 1000), -1);
  else
    perform penstock.require_sql_condition();
    return query execute format(
      'select id::varchar, stream_name::varchar, type::varchar, position, global_position,
         data::varchar, metadata::varchar, time
       from message_store.messages
       where stream_name = $1 and position >= $2 and (%s)
       order by position
       limit $3', get_stream_messages.condition)
    using
      get_stream_messages.stream_name,
      coalesce(get_stream_messages.position, 0),
      nullif(coalesce(get_stream_messages.batch_size, 1000), -1);
  end if;
end
$$;

create or replace function message_store.get_last_stream_message(
  stream_name varchar,
  type varchar default null
)
returns setof message_store.message language plpgsql set enable_sort = off
as $$
begin
  return query
    select m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
      m.data::varchar, m.metadata::varchar, m.time
    from message_store.messages m
    where m.stream_name = get_last_stream_message.stream_name
      and (get_last_stream_message.type is null or m.type = get_last_stream_message.type)
    order by m.position desc
    limit 1;
end
$$;
