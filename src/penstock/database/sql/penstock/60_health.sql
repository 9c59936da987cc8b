-- How a store stands, in figures: who waits, for how long, and what was set aside.
--
-- The promise: a look costs the same however long the log is, so it may be taken every few seconds.
-- Each category, consumer, session, group, topic and processor costs a few index look-ups; a count goes no
-- further than 1,000, and says so (`at_least`).
--
-- A figure's name says of what it is and what it measures. Lags and ages are in seconds; a lag is for
-- how long the first message has been waiting that is still to be handled.

-- The streams whose names begin with `prefix`, such as order:position-, found by jumping along the
-- index. A collation may put others in between, such as those of a category Order: after twenty in
-- a row it is taken that there are no more.
create or replace function penstock.streams_within(prefix varchar)
returns setof varchar language sql stable
as $$
  with recursive names(name, others) as (
    -- the first stream after the prefix, and then each stream after the one before
    (select m.stream_name, 0 from message_store.messages m
     where m.stream_name > prefix order by m.stream_name limit 1)
    union all
    select later.stream_name,
      case when starts_with(later.stream_name, prefix) then 0 else names.others + 1 end
    from names
    cross join lateral (
      select m.stream_name from message_store.messages m
      where m.stream_name > names.name order by m.stream_name limit 1
    ) later
    where names.others < 20
  )
  select names.name from names where starts_with(names.name, prefix)
$$;

-- The seconds since a time as the log keeps it; 0 without one.
create or replace function penstock.seconds_since("time" timestamp)
returns double precision language sql volatile
as $$
  select greatest(0, coalesce(
    extract(epoch from clock_timestamp() - seconds_since.time at time zone 'utc'), 0))
$$;

-- When the first message of a category, or of `$all`, after a position was written.
create or replace function penstock.first_waiting(category varchar, after bigint)
returns timestamp language plpgsql stable
as $$
begin
  if first_waiting.category = '$all' then
    return (
      select m.time from message_store.messages m
      where m.global_position > after and not penstock.is_bookkeeping(m.stream_name)
      order by m.global_position limit 1);
  end if;
  return (
    select m.time from message_store.messages m
    where (message_store.category(m.stream_name), m.global_position)
        > (first_waiting.category, after)
      and (message_store.category(m.stream_name), m.global_position)
        <= (first_waiting.category, 9223372036854775807)
    order by message_store.category(m.stream_name), m.global_position limit 1);
end
$$;

-- Who holds the watermark back, for how long already, and how many positions from readers. A standby
-- cannot know. Where PostgreSQL does not show our owner when the transaction began, since it is another
-- role's, it is as old as the first message behind it, or older.
create or replace function penstock.watermark_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  select 'watermark.age', coalesce(extract(epoch from w.age), penstock.seconds_since((
      select m.time from message_store.messages m
      where m.global_position > w.bound order by m.global_position limit 1))), jsonb_strip_nulls(
    jsonb_build_object('pid', w.pid, 'application_name', w.application_name, 'role', w.role,
      'state', w.state))
  from (values (1)) as one
  left join lateral (select o.* from penstock.open_writers() o order by o.bound limit 1) w on true
  where not pg_is_in_recovery()
  union all
  select 'watermark.behind', greatest(0, coalesce(
    (select max(m.global_position) from message_store.messages m), 0) - penstock.watermark()), '{}'
  where not pg_is_in_recovery()
$$;

-- The streams that the consumers of each category keep for themselves: the `position` or the `parked`.
create or replace function penstock.streams_of_consumers(kind text)
returns table (category varchar, consumer_id varchar, stream_name varchar)
language sql stable
as $$
  select left(c.category, -length(':' || kind)), message_store.id(s.stream_name), s.stream_name
  from penstock.categories() c
  cross join lateral penstock.streams_within((c.category || '-')::varchar) as s(stream_name)
  where c.category like '%:' || kind
$$;

-- The lags of consumers, wherever they keep their positions: the table's counts where both have one.
create or replace function penstock.consumer_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  with kept as (
    select message_store.category(p.consumer_id) as category,
      message_store.id(p.consumer_id) as consumer_id, p.position
    from penstock.all_positions() p
    union all
    select s.category, s.consumer_id, last.position
    from penstock.streams_of_consumers('position') s
    cross join lateral (
      -- what is no position is taken for the beginning
      select coalesce(penstock.position_in(m.data), 0) as position
      from message_store.messages m
      where m.stream_name = s.stream_name order by m.position desc limit 1
    ) last
    where penstock.latest_position(s.category || '-' || s.consumer_id) is null
  )
  select 'consumer.lag', penstock.seconds_since(penstock.first_waiting(k.category, k.position)),
    jsonb_build_object('category', k.category, 'consumer_id', k.consumer_id)
  from kept k
$$;

-- What consumers have parked and nobody has handled or dropped since, by the last 1,000 entries of each
-- one's parked stream.
create or replace function penstock.parked_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  select 'consumer.parked', count(*) filter (where told.waits),
    jsonb_strip_nulls(jsonb_build_object('category', s.category, 'consumer_id', s.consumer_id,
      'at_least', case when sum(told.entries) = 1000 then true end))
  from penstock.streams_of_consumers('parked') s
  cross join lateral (
    -- for each parked message how its story ends
    select count(*) as entries, coalesce(max(e.position) filter (where e.type = 'Parked')
      > coalesce(max(e.position) filter (where e.type in ('Handled', 'Dropped')), -1), false) as waits
    from (
      select m.type, m.position,
        coalesce(m.data #>> '{message,global_position}', m.data ->> 'global_position') as parked
      from message_store.messages m
      where m.stream_name = s.stream_name order by m.position desc limit 1000
    ) e
    group by e.parked
  ) told
  group by s.category, s.consumer_id
$$;

-- The lags of sessions, each a consumer of one stream.
create or replace function penstock.session_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  select 'session.lag', penstock.seconds_since((
      select m.time from message_store.messages m
      where m.stream_name = s.stream_name and m.position >= s.next_offset order by m.position limit 1)),
    jsonb_build_object('stream_name', s.stream_name, 'consumer_id', s.consumer_id)
  from penstock.all_sessions() s
$$;

-- The first message that a group has not handled: routed to a partition that is not parked, or still
-- to be routed.
create or replace function penstock.first_pending(own penstock.consumer_groups)
returns bigint language sql stable
as $$
  select least(
    penstock.first_unhandled(own.id),
    (select min(f.global_position)
     from penstock.latest_group_progress(own.id) p
     join penstock.group_types g on g.group_pk = own.id and g.handled
     join penstock.message_types t on t.id = g.type_id
     cross join lateral (
       select a.global_position from penstock.message_attributes a
       where a.key_pair = penstock.key_pair('', t.type) and a.type_id = t.id
         and a.global_position > coalesce((p.backfills ->> t.id::text)::bigint, p.routed_to)
       order by a.global_position limit 1
     ) f))
$$;

-- How the groups stand, for operators.
create or replace function penstock.groups()
returns table (
  group_id text, status text, partition_by text[], partitions bigint, pending bigint,
  claimed bigint, parked bigint, routed_to bigint, oldest_pending timestamptz
)
language sql stable
set enable_bitmapscan = off
as $$
  select g.group_id, g.status, g.partition_by, c.partitions, c.pending, c.claimed, c.parked,
    a.routed_to, m.time at time zone 'utc'
  from penstock.consumer_groups g
  cross join lateral penstock.latest_group_progress(g.id) a
  cross join lateral (
    select count(*) as partitions,
      count(*) filter (where s.next_position is not null) as pending,
      count(*) filter (where s.token is not null) as claimed,
      count(*) filter (where s.parked_at is not null) as parked,
      min(s.next_position) as oldest
    from penstock.partitions p cross join lateral penstock.latest_partition_state(p.offset_id) s
    where p.group_pk = g.id
  ) c
  left join message_store.messages m
    on m.global_position = least(c.oldest, penstock.first_pending(g))
  order by g.group_id
$$;

-- The lags of partitioned groups, their oldest claims, and how many partitions they have parked.
create or replace function penstock.group_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  select 'group.lag', penstock.seconds_since((
      select m.time from message_store.messages m
      where m.global_position = penstock.first_pending(g))),
    jsonb_build_object('group_id', g.group_id)
  from penstock.consumer_groups g
  where g.partition_by is not null
  union all
  select 'group.claim_age', extract(epoch from clock_timestamp() - oldest.claimed_at),
    jsonb_build_object('group_id', g.group_id, 'partition_key', oldest.partition_key,
      'claimed_by', oldest.claimed_by)
  from penstock.consumer_groups g
  cross join lateral penstock.oldest_claim(g.id) oldest
  union all
  select 'group.parked', c.parked, jsonb_strip_nulls(jsonb_build_object(
    'group_id', g.group_id, 'at_least', case when c.parked = 1000 then true end))
  from penstock.consumer_groups g
  cross join lateral (
    select count(*) as parked from (
      select from penstock.partition_states s
      where s.group_pk = g.id and s.parked_at is not null limit 1000
    ) p
  ) c
$$;

-- The outbox: for how long its first message is due, or its lease over, and of which topic that is; and
-- what failed, by topic.
create or replace function penstock.outbox_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  with recursive topics as (
    -- the first topic with a failure, and then each topic after the one before
    (select o.topic from penstock.outbox o where o.state = 'failed' order by o.topic limit 1)
    union all
    select later.topic from topics
    cross join lateral (
      select o.topic from penstock.outbox o
      where o.state = 'failed' and o.topic > topics.topic order by o.topic limit 1
    ) later
  )
  select 'outbox.lag', penstock.seconds_since(first.since at time zone 'utc'), jsonb_strip_nulls(
    jsonb_build_object('oldest_topic', case when first.since <= clock_timestamp() then first.topic end))
  from (values (1)) as one
  left join lateral (
    (select o.due as since, o.topic from penstock.outbox o
     where o.state = 'ready' and o.topic <> '' order by o.due, o.id limit 1)
    union all
    (select o.lease_until, o.topic from penstock.outbox o
     where o.state = 'in_progress' order by o.lease_until limit 1)
    order by 1 limit 1
  ) first on true
  union all
  select 'outbox.failed', c.failed, jsonb_strip_nulls(jsonb_build_object(
    'topic', t.topic, 'at_least', case when c.failed = 1000 then true end))
  from topics t
  cross join lateral (
    select count(*) as failed from (
      select from penstock.outbox o where o.state = 'failed' and o.topic = t.topic limit 1000
    ) o
  ) c
$$;

-- The lags of pipelines' processors, by the queue that has waited longest, and which were stopped by an
-- error. In a queue that is a stream, a processor counts the positions of that stream.
create or replace function penstock.processor_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  select 'processor.lag', coalesce((
      select max(penstock.seconds_since(case when message_store.is_category(t.queue)
        then penstock.first_waiting(t.queue, t.position)
        else (
          select m.time from message_store.messages m
          where m.stream_name = t.queue and m.position > t.position order by m.position limit 1
        ) end))
      from penstock.latest_processor_progress(p.pipeline, p.processor) s
      cross join lateral (
        select e.key as queue, e.value::bigint as position from jsonb_each_text(s.tailers) e
      ) t), 0),
    jsonb_build_object('pipeline', p.pipeline, 'processor', p.processor)
  from penstock.processors p
  where p.kind <> 'source' and p.retired_at is null
  union all
  select 'processor.failed', (p.error is not null)::integer, jsonb_strip_nulls(
    jsonb_build_object('pipeline', p.pipeline, 'processor', p.processor, 'error', p.error))
  from penstock.processors p
  where p.retired_at is null
$$;

create or replace function penstock.health()
returns table (name text, value double precision, detail jsonb)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
  select * from penstock.watermark_figures()
  union all select * from penstock.consumer_figures()
  union all select * from penstock.parked_figures()
  union all select * from penstock.session_figures()
  union all select * from penstock.group_figures()
  union all select * from penstock.outbox_figures()
  union all select * from penstock.processor_figures()
$$;
