-- The safety look of the wake-ups (database/wake_ups.py): for whom there may be something that nobody has
-- notified of, in one statement for all waiters of a process.
--
-- The promise: whoever waits for a message, for the outbox or for a group is named by the first look after
-- there is something for it, whoever wrote that and however. A look costs some index look-ups for each name
-- of a queue, a topic and a group, and reads the messages since the last one; other names cost nothing.
--
-- SECURITY DEFINER: one connection looks for all waiters of a process, whatever its role may read.

-- What the messages after a position and up to another are waited for by: the names of database/waiters.py,
-- or '*' if the messages are more than 20,000. Up to the watermark of an earlier statement, nothing is missed.
create or replace function penstock.written_names(after bigint, until bigint)
returns setof text language plpgsql volatile set search_path = pg_catalog set enable_seqscan = off
as $$
begin
  if until - after > 20000 then  -- rather than count them
    return next '*';
    return;
  end if;
  return query
    select distinct n.name
    from (
      select distinct message_store.category(m.stream_name) as category, m.type
      from message_store.messages m where m.global_position > after and m.global_position <= until
    ) w
    cross join lateral (
      values ('log'), ('category:' || w.category), ('type:' || w.type)
    ) as n(name);
end
$$;

-- The streams whose last message is after a position. A queue is read to its end, beyond the watermark.
create or replace function penstock.streams_longer(streams text[], after bigint)
returns setof text language sql stable set search_path = pg_catalog set enable_seqscan = off
as $$
  select s.name
  from unnest(streams) as s(name)
  cross join lateral (
    select m.global_position from message_store.messages m
    where m.stream_name = s.name order by m.position desc limit 1
  ) last
  where last.global_position > after
$$;

-- The names of the topics that have a message which is due; and of the outbox, if a lease has ended: the next
-- claim, of whatever topics, makes that message ready.
create or replace function penstock.outbox_due(topics text[], moment timestamptz)
returns setof text language sql stable set search_path = pg_catalog set enable_seqscan = off
as $$
  select 'topic:' || t.topic
  from unnest(topics) as t(topic)
  where exists (
    select from penstock.outbox o where o.state = 'ready' and o.topic = t.topic and o.due <= moment)
  union all
  select 'outbox' where topics <> '{}' and exists (
    select from penstock.outbox o where o.state = 'in_progress' and o.lease_until <= moment)
$$;

-- The groups that have a partition to claim or messages to route from the start, and those that were started
-- some moments ago, which may have either.
create or replace function penstock.groups_ready(group_ids text[], moment timestamptz)
returns setof text language sql stable set search_path = pg_catalog set enable_seqscan = off
as $$
  select g.group_id
  from unnest(group_ids) as w(group_id)
  join penstock.consumer_groups g on g.group_id = w.group_id and g.status = 'active'
  cross join lateral penstock.latest_group_progress(g.id) p
  cross join lateral penstock.latest_claim_cursor(g.id, '{}') f
  where p.caught_up_at = -1
    or g.updated_at > greatest(g.created_at, moment - interval '10 seconds')
    or exists (
      select from penstock.partition_states s
      where s.group_pk = g.id and s.queue_position is not null
        and (s.queue_position, s.version) >= (f.queue_position, f.version))
    or exists (
      select from penstock.partition_states s
      where s.group_pk = g.id and s.due is not null and s.due >= f.due and s.due <= moment)
    or exists (
      select from penstock.uncovered_states(f) s
      where s.queue_position is not null or s.due <= moment)
$$;

-- The watermark, and the names that may have something: written after the watermark of the last look, in one
-- of these queues, or due in one of these topics and groups.
create or replace function penstock.safety_look(
  after bigint, streams text[], topics text[], group_ids text[],
  out watermark bigint, out names text[])
language plpgsql volatile security definer set search_path = pg_catalog
as $$
declare
  moment constant timestamptz := clock_timestamp();
begin
  watermark := penstock.watermark();  -- in a statement before those that read up to it
  names := array(
    select * from penstock.written_names(after, watermark)
    union all
    select 'stream:' || s from penstock.streams_longer(streams, after) s
    union all
    select * from penstock.outbox_due(topics, moment)
    union all
    select 'group:' || g from penstock.groups_ready(group_ids, moment) g);
end
$$;
