-- Health figures: lags, ages of claims and open writers, and counts of what was parked or failed.
--
-- The promise: a call costs the same however long the log is, so it can be made every few seconds.
-- Each category, consumer, session, group, topic and processor costs a few index look-ups; a count stops
-- at 1,000 and is then marked `at_least`.
--
-- A figure's name has two parts: the object, and the measure. Lags and ages are in seconds; a lag is the
-- age of the first message that is not handled yet.

-- The seconds since a time of the log; 0 if it is null.
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

-- The age of the transaction that holds the watermark back, and how many positions it keeps from readers.
-- Not on a standby. Where PostgreSQL does not show the start of another role's transaction, its age is that
-- of the first message after its bound, a lower limit.
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

-- The lags of consumers; anything but a position counts as 0.
create or replace function penstock.consumer_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  select 'consumer.lag',
    penstock.seconds_since(penstock.first_waiting(p.category, coalesce(p.position, 0))),
    jsonb_build_object('category', p.category, 'consumer_id', p.consumer_id)
  from penstock.stored_positions(20) p
$$;

-- How many messages each consumer has parked, and the error of the newest.
create or replace function penstock.parked_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
as $$
  select 'consumer.parked', p.parked,
    jsonb_strip_nulls(jsonb_build_object('category', s.category, 'consumer_id', s.consumer_id,
      'at_least', case when p.at_least then true end, 'error', p.last_error))
  from penstock.streams_of_consumers('parked') s
  cross join lateral penstock.parked_summary(s.stream_name) p
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

-- Groups by their ids, after `after_id`, at most `page_size`; or, if `of_group` is given, that one. Partitions
-- are counted up to `most`, and claims among the first `most` claims and retries. `oldest_pending` is when the
-- first message was written that is not handled.
create or replace function penstock.groups(
  most bigint default 10000, after_id text default '', page_size bigint default 1000, of_group text default null)
returns table (
  group_id text, status text, partition_by text[], handled_types text[], partitions bigint, pending bigint,
  claimed bigint, parked bigint, routed_to bigint, oldest_pending timestamptz, created_at timestamptz
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with chosen as materialized (
    (select g.* from penstock.consumer_groups g
     where of_group is null and g.group_id > after_id order by g.group_id limit page_size)
    union all
    select g.* from penstock.consumer_groups g where g.group_id = of_group
  )
  select g.group_id, g.status, g.partition_by, g.handled_types,
    (select count(*) from (
       select from penstock.partitions p where p.group_pk = g.id order by p.feed limit most) c),
    (select count(*) from (
       select from penstock.partition_states s
       where s.group_pk = g.id and s.next_position is not null and s.parked_at is null
       order by s.next_position limit most) c),
    (select count(s.token) from (
       select s.token from penstock.partition_states s
       where s.group_pk = g.id and s.due is not null order by s.due limit most) s),
    (select count(*) from (
       select from penstock.partition_states s
       where s.group_pk = g.id and s.parked_at is not null order by s.next_position limit most) c),
    a.routed_to,
    (select m.time at time zone 'utc'
     from (select penstock.first_pending(g) as position offset 0) f  -- called once
     join penstock.indexed_messages m on m.global_position = f.position),
    g.created_at
  from chosen g
  cross join lateral penstock.latest_group_progress(g.id) a
  order by g.group_id
$$;

-- The lags of partitioned groups, their oldest claims, how many partitions they have parked, and the error of
-- the newest.
create or replace function penstock.group_figures()
returns table (name text, value double precision, detail jsonb)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  select 'group.lag', penstock.seconds_since((
      select m.time from penstock.indexed_messages m
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
  select 'group.parked', c.parked, jsonb_strip_nulls(jsonb_build_object('group_id', g.group_id,
    'at_least', case when c.parked = 1000 then true end, 'error', left(c.error, 1000)))
  from penstock.consumer_groups g
  cross join lateral (
    select count(*) as parked, (array_agg(p.error order by p.parked_at desc))[1] as error from (
      select s.error, s.parked_at from penstock.partition_states s
      where s.group_pk = g.id and s.parked_at is not null limit 1000
    ) p
  ) c
$$;

-- The outbox: for how long its first message has been due, or its lease has ended, and its topic; and how
-- many messages have failed, by topic, with the error of the newest.
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
    'topic', t.topic, 'at_least', case when c.failed = 1000 then true end, 'error', (
      select left(o.last_error, 1000) from penstock.outbox o
      where o.state = 'failed' and o.topic = t.topic order by o.topic desc, o.finished_at desc limit 1)))
  from topics t
  cross join lateral (
    select count(*) as failed from (
      select from penstock.outbox o where o.state = 'failed' and o.topic = t.topic limit 1000
    ) o
  ) c
$$;

-- The lags of processors, the greatest of their queues, and which were stopped by an error. In a queue that
-- is a stream, a tailer is a position of that stream.
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
