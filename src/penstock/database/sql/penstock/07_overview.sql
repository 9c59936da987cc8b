-- The categories and streams of the log, for operators. Each name is found by a skip scan of an index, so
-- the cost grows with the number of names and not with the number of messages.

-- Categories by name after `after`, and their last messages: the first `most`, or all.
create or replace function penstock.categories(after varchar default '', most bigint default null)
returns table (category varchar, head bigint, last_written timestamp)
language sql stable
as $$
  with recursive names as (
    -- the first category after `after`, and then each category after the one before
    (select message_store.category(m.stream_name) as name from message_store.messages m
     where message_store.category(m.stream_name) > categories.after
     order by message_store.category(m.stream_name) limit 1)
    union all
    select (
      select message_store.category(m.stream_name) from message_store.messages m
      where message_store.category(m.stream_name) > names.name
      order by message_store.category(m.stream_name) limit 1)
    from names where names.name is not null
  )
  select names.name, last.global_position, last.time
  from (select n.name from names n where n.name is not null limit categories.most) names
  cross join lateral (
    -- as pairs, which only the index messages_category has in order: see 06_category_read.sql
    select m.global_position, m.time from message_store.messages m
    where (message_store.category(m.stream_name), m.global_position) >= (names.name, 0)
      and (message_store.category(m.stream_name), m.global_position)
        <= (names.name, 9223372036854775807)
    order by message_store.category(m.stream_name) desc, m.global_position desc limit 1
  ) last
$$;

-- Whether names are sorted by their bytes. Other collations may sort names of other categories among those
-- of a category.
create or replace function penstock.sorts_by_bytes()
returns boolean language sql stable
as $$
  select d.datlocprovider = 'b'  -- PostgreSQL's own locales: all of them do
    or d.datlocprovider = 'c' and d.datcollate in ('C', 'POSIX', 'C.UTF-8', 'C.utf8')
  from pg_catalog.pg_database d where d.datname = current_database()
$$;

-- The names of streams after `after`, of a category or (null) of all. Those of other categories are among
-- them: `others` is how many have come in a row, and after more than `past` of them the scan ends.
create or replace function penstock.stream_names(
  category varchar, after varchar default null, past bigint default 9223372036854775807)
returns table (stream_name varchar, others bigint)
language sql stable
as $$
  with recursive names(name, others) as (
    -- the first name, and then each name after the one before
    select first.stream_name,
      (message_store.category(first.stream_name) is distinct from coalesce(
        stream_names.category, message_store.category(first.stream_name)))::int::bigint
    from (
      (select m.stream_name from message_store.messages m
       where (stream_names.after is null or stream_names.after < stream_names.category)
         and m.stream_name >= coalesce(stream_names.category, '')
       order by m.stream_name limit 1)
      union all
      (select m.stream_name from message_store.messages m
       where (stream_names.after < stream_names.category) is not true
         and m.stream_name > stream_names.after
       order by m.stream_name limit 1)
    ) first
    union all
    select later.stream_name, case
      when message_store.category(later.stream_name) is distinct from coalesce(
        stream_names.category, message_store.category(later.stream_name)) then names.others + 1
      else 0 end
    from names
    cross join lateral (
      select m.stream_name from message_store.messages m
      where m.stream_name > names.name order by m.stream_name limit 1
    ) later
    -- sorted by bytes, the first other name after the prefix is the end
    where names.others <= case
      when stream_names.category is not null and names.name > stream_names.category || '-'
        and (select penstock.sorts_by_bytes()) then 0
      else stream_names.past end
  )
  select names.name, names.others from names
$$;

-- Streams by name after `after`, of a category or of all, and their last messages.
create or replace function penstock.streams(
  category varchar default null, after varchar default '', most bigint default 100)
returns table (stream_name varchar, version bigint, last_written timestamp)
language sql stable
as $$
  select names.stream_name, last.position, last.time
  from (
    select n.stream_name from penstock.stream_names(streams.category, nullif(streams.after, '')) n
    where n.others = 0 limit streams.most
  ) names
  cross join lateral (
    select m.position, m.time from message_store.messages m
    where m.stream_name = names.stream_name
    order by m.position desc limit 1
  ) last
$$;

-- The streams in which consumers keep their positions (`position`) or parked messages (`parked`).
create or replace function penstock.streams_of_consumers(kind text, past bigint default 20)
returns table (category varchar, consumer_id varchar, stream_name varchar)
language sql stable
as $$
  select left(c.category, -length(':' || kind)), message_store.id(s.stream_name), s.stream_name
  from penstock.categories() c
  cross join lateral penstock.stream_names(c.category, null, streams_of_consumers.past) s
  where c.category like '%:' || kind and s.others = 0 and message_store.id(s.stream_name) is not null
$$;
