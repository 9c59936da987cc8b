-- The categories and streams of the log, for operators. Each name is found by a skip scan of an index, so
-- the cost grows with the number of names and not with the number of messages.

create or replace function penstock.categories()
returns table (category varchar, head bigint, last_written timestamp)
language sql stable
as $$
  with recursive names as (
    -- the first category, and then each category after the one before
    (select message_store.category(m.stream_name) as name from message_store.messages m
     order by message_store.category(m.stream_name) limit 1)
    union all
    select (
      select message_store.category(m.stream_name) from message_store.messages m
      where message_store.category(m.stream_name) > names.name
      order by message_store.category(m.stream_name) limit 1)
    from names where names.name is not null
  )
  select names.name, last.global_position, last.time
  from names
  cross join lateral (
    -- as pairs, which only the index messages_category has in order: see 06_category_read.sql
    select m.global_position, m.time from message_store.messages m
    where (message_store.category(m.stream_name), m.global_position) >= (names.name, 0)
      and (message_store.category(m.stream_name), m.global_position)
        <= (names.name, 9223372036854775807)
    order by message_store.category(m.stream_name) desc, m.global_position desc limit 1
  ) last
  where names.name is not null
$$;

create or replace function penstock.streams(
  category varchar default null, after varchar default '', most bigint default 100)
returns table (stream_name varchar, version bigint, last_written timestamp)
language sql stable
as $$
  with recursive names as (
    -- the first stream after `after`, and then each stream after the one before
    (select m.stream_name as name from message_store.messages m
     where m.stream_name > streams.after order by m.stream_name limit 1)
    union all
    select (
      select m.stream_name from message_store.messages m
      where m.stream_name > names.name order by m.stream_name limit 1)
    from names where names.name is not null
  )
  select names.name, last.position, last.time
  from names
  cross join lateral (
    select m.position, m.time from message_store.messages m
    where m.stream_name = names.name
    order by m.position desc limit 1
  ) last
  where names.name is not null
    and (streams.category is null or message_store.category(names.name) = streams.category)
  limit streams.most
$$;
