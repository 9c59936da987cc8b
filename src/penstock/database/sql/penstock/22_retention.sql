-- Removing the oldest messages of a stream or a category.
--
-- The promise: only a prefix goes, so what is left has no holes; a consumer that has not come so far
-- keeps what it still needs, unless it is overruled; and the last message of each stream stays, since
-- it holds the stream's version: positions and offsets never start again.
--
-- Each run that removed something is recorded, so that a reader that fell behind can be told how much
-- it missed.

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

-- The consumer of a category, or of `$all`, that has come least far, and the first message it needs.
-- A partitioned group finds its messages by type, wherever they are, so each one counts; a pipeline's
-- processor is called by both names, such as shop.bill. Who reads one stream, a session or a processor,
-- counts positions in that stream, and is looked at apart.
create or replace function penstock.slowest_consumer(category varchar)
returns table (consumer_id text, needs bigint)
language plpgsql volatile
set enable_bitmapscan = off
as $$
begin
  return query
    select w.consumer_id::text, w.needs
    from (
      select c.consumer_id, coalesce(c.position, 0) + 1 as needs
      from penstock.stored_positions(slowest_consumer.category) c
      union all
      select c.consumer_id, coalesce(c.position, 0) + 1
      from penstock.stored_positions('$all') c
      union all
      select g.group_id, least(p.routed_to + 1, penstock.first_unhandled(g.id), (
        select min(s.next_position) from penstock.partition_states s
        where s.group_pk = g.id and s.parked_at is not null))
      from penstock.consumer_groups g
      cross join lateral penstock.progress_of(g.id) p
      where g.partition_by is not null or g.replayed_by is not null  -- since a reset
      union all
      select t.pipeline || '.' || t.processor, t.position + 1
      from penstock.tailers_at_work t
      where t.queue = slowest_consumer.category
    ) w
    order by w.needs
    limit 1;
end
$$;

-- The messages of a stream or category below both bounds, oldest first, but for the last of a stream.
create or replace function penstock.removable(
  target varchar, stream_bound bigint, global_bound bigint, after bigint default 0)
returns table (stream_name varchar, "position" bigint, global_position bigint)
language sql stable
as $$
  (select m.stream_name::varchar, m.position, m.global_position
   from message_store.messages m
   where not message_store.is_category(target)
     and m.stream_name = target
     and m.position < stream_bound
     and m.global_position < global_bound
     and m.global_position > after
     and exists (
       select from message_store.messages later
       where later.stream_name = m.stream_name and later.position > m.position)
   order by m.position)
  union all
  (select m.stream_name::varchar, m.position, m.global_position
   from message_store.messages m
   where message_store.is_category(target)
     and (message_store.category(m.stream_name), m.global_position) > (target, after)
     and (message_store.category(m.stream_name), m.global_position) < (target, global_bound)
     and exists (
       select from message_store.messages later
       where later.stream_name = m.stream_name and later.position > m.position)
   order by message_store.category(m.stream_name), m.global_position)
$$;

-- Remove at most `most` messages below the bound, oldest first, beginning after position `after`. Give
-- one of the three bounds: `keep_count` messages, those at or after `keep_since`, or those from
-- position `keep_from` on (a position in the stream, or a global position for a category). Returns how
-- many went and the last of them; once there are no more, who keeps the next from going, if anyone.
create or replace function penstock.retain(
  target varchar,
  keep_count bigint default null,
  keep_since timestamptz default null,
  keep_from bigint default null,
  ignore_consumers boolean default false,
  most bigint default 10000,
  after bigint default 0
)
returns table (removed bigint, last_position bigint, held_back_by text)
language plpgsql volatile security definer set search_path = pg_catalog
as $$
#variable_conflict use_variable
declare
  category constant varchar := message_store.category(target);
  is_stream constant boolean := not message_store.is_category(target);
  -- messages below both of these may go
  global_bound bigint := penstock.watermark() + 1;
  stream_bound bigint := 9223372036854775807;
  slowest record;
  oldest bigint[];
  run record;
begin
  if is_stream then
    stream_bound := coalesce(
      keep_from,
      coalesce(message_store.stream_version(target), -1) + 1 - keep_count,
      (select m.position from message_store.messages m
       where m.stream_name = target and m.time >= keep_since at time zone 'utc'
       order by m.position limit 1),
      stream_bound);
  else
    global_bound := least(global_bound, coalesce(
      keep_from,
      case when keep_count is not null then coalesce((
        select m.global_position + 1 from message_store.messages m
        where (message_store.category(m.stream_name), m.global_position) >= (category, 0)
          and (message_store.category(m.stream_name), m.global_position) < (category, global_bound)
        order by message_store.category(m.stream_name) desc, m.global_position desc
        offset keep_count limit 1), 0) end,
      (select m.global_position from message_store.messages m
       where (message_store.category(m.stream_name), m.global_position) >= (category, 0)
         and (message_store.category(m.stream_name), m.global_position) < (category, global_bound)
         and m.time >= keep_since at time zone 'utc'
       order by message_store.category(m.stream_name), m.global_position limit 1),
      global_bound));
  end if;
  select c.consumer_id, c.needs into slowest from penstock.slowest_consumer(category) c;

  select array(
    select r.global_position
    from penstock.removable(target, stream_bound, global_bound, after) r
    where ignore_consumers or (
      r.global_position < coalesce(slowest.needs, global_bound)
      and not exists (
        select from penstock.sessions s
        where s.stream_name = r.stream_name and s.next_offset <= r.position)
      and not exists (
        select from penstock.tailers_at_work t
        where t.queue = r.stream_name and t.position < r.position))
    limit most)
  into oldest;

  with gone as (
    delete from message_store.messages m where m.global_position = any (oldest)
    returning m.global_position
  )
  select count(*) as count, min(g.global_position) as lowest, max(g.global_position) as highest
  into run from gone g;

  if run.count > 0 then
    insert into penstock.retentions
      (target, category, lowest_position, highest_position, message_count)
    values (target, category, run.lowest, run.highest, run.count);
  end if;
  removed := run.count;
  last_position := run.highest;

  if cardinality(oldest) < most then  -- what could still go is kept by somebody
    select coalesce(
      case when r.global_position >= slowest.needs then slowest.consumer_id end,
      (select s.consumer_id from penstock.sessions s
       where s.stream_name = r.stream_name and s.next_offset <= r.position
       order by s.next_offset limit 1),
      (select t.pipeline || '.' || t.processor from penstock.tailers_at_work t
       where t.queue = r.stream_name and t.position < r.position order by t.position limit 1))
    into held_back_by
    from penstock.removable(target, stream_bound, global_bound) r
    limit 1;
  end if;
  return next;
end
$$;

-- At most how many messages of a category (or of `$all`) were removed between two positions: what a
-- reader missed that read the one and, next, the other.
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
