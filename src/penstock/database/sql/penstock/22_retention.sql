-- Removing the oldest messages of a stream or a category.
--
-- The promise: only a prefix is removed, so what is left has no gaps; messages that a consumer has not read
-- yet stay, unless consumers are ignored; and the last message of each stream stays, since it holds the
-- stream's version: positions and offsets never start again.
--
-- A stream that is named after its only message's id, {category}-{id}, is removed whole: whoever appends
-- without a stream's name gets a new one each time, so nobody writes to this one again. Who does so by hand
-- begins at position 0. Two such streams stay: the one with the last message of its category, so that the
-- head of a category, which readers keep, never goes back; and one that a session or a processor reads, since
-- its offset would be beyond the tail.
--
-- What would break it: an append that is repeated, with the same id, after its message was removed. Nothing
-- is left to recognise it by, and it is written again.
--
-- A run computes its bounds once, by the server's clock, and then removes messages in short transactions.
-- Each goes through the next messages in the order of an index, from the end of the one before: so it
-- costs the same however long the log is, and however much was removed before. The positions of consumers
-- are read each time, since a consumer may be moved back during a run.
--
-- Each transaction that removed messages is recorded, so that a reader that fell behind can find out how
-- many it missed.

create table if not exists penstock.retentions (
  id bigint generated always as identity primary key,
  target text not null,                    -- the stream or category
  category text not null,
  lowest_position bigint not null,         -- global positions of the first and last message removed
  highest_position bigint not null,
  message_count bigint not null,
  removed_at timestamptz not null default now()
);

create index if not exists retentions_category on penstock.retentions (category, highest_position);

-- The slowest consumer of a category, or of `$all`, and the first message that it needs. A partitioned
-- group reads its types from all categories, so every group counts; a processor is named with its
-- pipeline, such as shop.bill. Readers of one stream (sessions, and processors that read a stream) have
-- positions in that stream, and are checked by penstock.remove_messages.
--
-- `position_streams` are those in which consumers of the category or of `$all` keep their positions.
create or replace function penstock.slowest_consumer(category varchar, position_streams varchar[])
returns table (needs bigint, reader jsonb)
language plpgsql volatile
set enable_bitmapscan = off
as $$
begin
  return query
    select w.needs, penstock.reader(w.kind, w.name, w.reads, w.needs, w.state, w.updated_at)
    from (
      select 'consumer' as kind, message_store.id(p.consumer_id)::text as name,
        message_store.category(p.consumer_id)::text as reads, p.position + 1 as needs, null as state,
        p.updated_at
      from penstock.all_positions() p
      where message_store.category(p.consumer_id) in (slowest_consumer.category, '$all')
      union all
      -- the last message of each position stream, unless the consumer has a row in the table by now
      select 'consumer', message_store.id(s.stream_name), k.category,
        coalesce(penstock.position_in(last.data), 0) + 1, null, last.time at time zone 'utc'
      from unnest(position_streams) as s(stream_name)
      cross join lateral (
        select left(message_store.category(s.stream_name), -length(':position')) as category
      ) k
      left join lateral (
        select m.data, m.time from message_store.messages m
        where m.stream_name = s.stream_name order by m.position desc limit 1
      ) last on true
      where penstock.latest_position(k.category || '-' || message_store.id(s.stream_name)) is null
      union all
      -- the first message that a group has not routed (of new types, less far than of others) or handled
      select 'group', g.group_id, null, n.needs,
        case when g.status <> 'active' then g.status
          when parked.next_position = n.needs then 'parked' else 'active' end,
        case when parked.next_position = n.needs then parked.parked_at else p.updated_at end
      from penstock.consumer_groups g
      cross join lateral penstock.latest_group_progress(g.id) p
      left join lateral (
        select s.next_position, s.parked_at from penstock.partition_states s
        where s.group_pk = g.id and s.parked_at is not null
        order by s.next_position, s.version limit 1
      ) parked on true
      cross join lateral (
        select least(p.routed_to + 1, penstock.first_unhandled(g.id), parked.next_position, (
          select min(l.value::bigint) + 1 from jsonb_each_text(p.backfills) l
          join penstock.group_types t on t.group_pk = g.id and t.type_id = l.key::integer)) as needs
      ) n
      where g.partition_by is not null or g.replayed_by is not null  -- configured, or reset since
      union all
      select 'processor', t.pipeline || '.' || t.processor, t.queue, t.position + 1,
        case when t.error is null then 'active' else 'failed' end, t.last_step_at
      from penstock.active_tailers t
      where t.queue = slowest_consumer.category
    ) w
    order by w.needs
    limit 1;
end
$$;

-- A reader that needs messages from a position on: a global one, or one in the stream if it reads a stream.
create or replace function penstock.reader(
  kind text, name text, reads text, needs bigint, state text, updated_at timestamptz)
returns jsonb language sql stable
as $$
  select jsonb_build_object(
    'kind', kind, 'name', name, 'reads', reads, 'needs', needs, 'state', state, 'updated_at', updated_at)
$$;

-- When the first message that a reader needs was written.
create or replace function penstock.waiting_since(reader jsonb)
returns timestamptz language plpgsql stable
as $$
declare
  reads constant varchar := reader ->> 'reads';
  needs constant bigint := reader ->> 'needs';
begin
  if message_store.is_category(reads) then  -- also null, for a group
    return penstock.first_waiting(coalesce(reads, '$all'), needs - 1) at time zone 'utc';
  end if;
  return (
    select m.time at time zone 'utc' from message_store.messages m
    where m.stream_name = reads and m.position >= needs order by m.position limit 1);
end
$$;

-- What a run keeps: messages from these bounds on, and those written at or after `keep_since`. Pass one
-- of: how many messages to keep, for how long, or from which position on (a position in the stream, or a
-- global position for a category). `position_streams` is passed on to penstock.remove_messages.
create or replace function penstock.retention_bounds(
  target varchar,
  keep_count bigint default null,
  keep_for interval default null,
  keep_from bigint default null,
  out stream_bound bigint,
  out global_bound bigint,
  out keep_since timestamptz,
  out position_streams varchar[]
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
#variable_conflict use_variable
declare
  is_stream constant boolean := not message_store.is_category(target);
begin
  stream_bound := 9223372036854775807;
  global_bound := penstock.watermark() + 1;
  keep_since := clock_timestamp() - keep_for;
  if is_stream then
    stream_bound := coalesce(
      keep_from,
      coalesce(message_store.stream_version(target), -1) + 1 - keep_count,
      stream_bound);
  elsif keep_count is not null then
    global_bound := coalesce((
      select m.global_position + 1 from message_store.messages m
      where (message_store.category(m.stream_name), m.global_position) >= (target, 0)
        and (message_store.category(m.stream_name), m.global_position) < (target, global_bound)
      order by message_store.category(m.stream_name) desc, m.global_position desc
      offset keep_count limit 1), 0);
  else
    global_bound := least(global_bound, keep_from);
  end if;
  position_streams := array(
    select s.stream_name from penstock.position_streams(message_store.category(target)) s
    union all
    select s.stream_name from penstock.position_streams('$all') s);
end
$$;

-- At most `most` messages of a stream or category below both bounds and after a position (in the stream, or
-- global for a category; null: from the first), oldest first. `place` is that position of each. `is_own`: the
-- stream is named after this message.
create or replace function penstock.messages_after(
  target varchar, stream_bound bigint, global_bound bigint, after bigint, most bigint)
returns table (
  place bigint, stream_name text, "position" bigint, global_position bigint, "time" timestamp,
  is_own boolean)
language plpgsql stable
as $$
begin
  if message_store.is_category(target) then
    return query
      select m.global_position, m.stream_name, m.position, m.global_position, m.time,
        m.position = 0 and message_store.id(m.stream_name) = m.id::text
      from message_store.messages m
      where (message_store.category(m.stream_name), m.global_position) > (target, coalesce(after, -1))
        and (message_store.category(m.stream_name), m.global_position) < (target, global_bound)
      order by message_store.category(m.stream_name), m.global_position
      limit most;
  else
    return query
      select m.position, m.stream_name, m.position, m.global_position, m.time,
        m.position = 0 and message_store.id(m.stream_name) = m.id::text
      from message_store.messages m
      where m.stream_name = target
        and m.position > coalesce(after, -1) and m.position < stream_bound
      order by m.position
      limit most;
  end if;
end
$$;

-- Go through at most `most` messages of a stream or category below the bounds of a run, oldest first,
-- after `after` (the `walked_to` of the last call; null: from the first). `going` are the global positions of
-- those that no one needs. Also returns how far it went (null: to the end), and the reader, if any, that
-- needs the first message which would go otherwise. It ends once the slowest consumer needs everything that
-- follows.
create or replace function penstock.removable_messages(
  target varchar,
  stream_bound bigint,
  global_bound bigint,
  keep_since timestamptz,
  position_streams varchar[],
  ignore_consumers boolean,
  after bigint,
  most bigint
)
returns table (going bigint[], walked_to bigint, held_back_by jsonb)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
#variable_conflict use_variable
declare
  category constant varchar := message_store.category(target);
  head constant bigint := penstock.category_head(category, penstock.watermark());
  slowest record;
  walked record;
begin
  select c.needs, c.reader into slowest
  from penstock.slowest_consumer(category, position_streams) c
  where not ignore_consumers;

  with next as materialized (
    -- the messages to go through
    select n.* from penstock.messages_after(target, stream_bound, global_bound, after, most) n
  ), kept as (
    -- the first of them that is too new
    select min(n.place) as place from next n
    where n.time >= keep_since at time zone 'utc' or n.global_position >= global_bound
  ), readers as (
    -- the sessions and processors that read one of their streams, not the category
    select s.stream_name, s.next_offset as needs,
      penstock.reader('session', s.consumer_id, s.stream_name, s.next_offset, null, s.updated_at) as reader
    from (select distinct n.stream_name from next n) streams
    cross join lateral penstock.sessions_of(streams.stream_name) s
    union all
    select t.queue, t.position + 1,
      penstock.reader('processor', t.pipeline || '.' || t.processor, t.queue, t.position + 1,
        case when t.error is null then 'active' else 'failed' end, t.last_step_at)
    from penstock.active_tailers t
    where not message_store.is_category(t.queue) and message_store.category(t.queue) = category
  ), slowest_readers as materialized (
    -- the slowest reader of each stream
    select distinct on (r.stream_name) r.stream_name, r.reader, r.needs
    from readers r
    order by r.stream_name, r.needs
  ), old as (
    -- those before it: whether the stream can do without it, and by whom it is needed
    select n.place, n.global_position,
      (select true from message_store.messages later
       where later.stream_name = n.stream_name and later.position > n.position limit 1)
      or n.is_own and n.global_position < head and r.stream_name is null as can_go,
      case when not ignore_consumers then coalesce(
        case when n.global_position >= slowest.needs then slowest.reader end,
        case when n.position >= r.needs then r.reader end)
      end as held_by
    from next n
    cross join kept k
    left join slowest_readers r on r.stream_name = n.stream_name
    where k.place is null or n.place < k.place
  )
  select array_agg(o.global_position) filter (where o.held_by is null) as going,
    (array_agg(o.held_by order by o.place) filter (where o.held_by is not null))[1] as held_by,
    bool_or(o.global_position >= slowest.needs) as all_held,
    (select max(n.place) from next n) as last,
    (select count(*) from next n) as count,
    (select k.place from kept k) as kept_from
  into walked
  from old o
  where o.can_go;

  going := walked.going;
  if walked.held_by is not null then
    held_back_by := walked.held_by
      || jsonb_build_object('waiting_since', penstock.waiting_since(walked.held_by));
  end if;
  if walked.count = most and walked.kept_from is null and walked.all_held is not true then
    walked_to := walked.last;
  end if;
  return next;
end
$$;

-- Remove those messages, in this transaction. Returns how many.
create or replace function penstock.remove_messages(
  target varchar,
  stream_bound bigint,
  global_bound bigint,
  keep_since timestamptz,
  position_streams varchar[],
  ignore_consumers boolean default false,
  after bigint default null,
  most bigint default 10000
)
returns table (removed bigint, walked_to bigint, held_back_by jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog
as $$
begin
  return query
    select penstock.delete_messages(target, r.going), r.walked_to, r.held_back_by
    from penstock.removable_messages(target, stream_bound, global_bound, keep_since, position_streams,
      ignore_consumers, after, most) r;
end
$$;

-- Delete messages of a stream or category, and record that. Returns how many.
create or replace function penstock.delete_messages(target varchar, positions bigint[])
returns bigint language plpgsql volatile
as $$
declare
  gone record;
begin
  with deleted as (
    delete from message_store.messages m where m.global_position = any (positions)
    returning m.global_position
  )
  select count(*) as count, min(d.global_position) as lowest, max(d.global_position) as highest
  into gone from deleted d;
  if gone.count > 0 then
    insert into penstock.retentions
      (target, category, lowest_position, highest_position, message_count)
    values (target, message_store.category(target), gone.lowest, gone.highest, gone.count);
  end if;
  return gone.count;
end
$$;

-- An upper bound of how many messages of a category (or of `$all`) were removed between two positions: what
-- a reader missed that read the one and, next, the other.
create or replace function penstock.missed("category" varchar, after bigint, "before" bigint)
returns bigint language sql stable
as $$
  select coalesce(sum(least(
    r.message_count,
    least(r.highest_position, missed.before - 1) - greatest(r.lowest_position - 1, missed.after)
  )), 0)::bigint
  from penstock.retentions r
  where (r.category = missed.category or missed.category = '$all')
    and r.highest_position > missed.after
    and r.lowest_position < missed.before
$$;
