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

-- The consumer of the target that has come least far: who it is, and the first message it needs, by
-- global position (a category's consumers) or by position in the stream (a queue's sessions).
create or replace function penstock.slowest_consumer(target varchar)
returns table (consumer_id text, needs_global_position bigint, needs_position bigint)
language sql volatile
as $$
  (select c.consumer_id, c.position + 1, null::bigint
   from penstock.consumers(1) c
   where c.category = message_store.category(target)
   order by c.position limit 1)
  union all
  (select s.consumer_id, null::bigint, s.next_offset
   from penstock.sessions s
   where s.stream_name = target
   order by s.next_offset limit 1)
$$;

-- Remove at most `most` messages below the bound, oldest first. Give one of the three bounds:
-- `keep_count` messages, those at or after `keep_since`, or those from position `keep_from` on (a
-- position in the stream, or a global position for a category).
create or replace function penstock.retain(
  target varchar,
  keep_count bigint default null,
  keep_since timestamptz default null,
  keep_from bigint default null,
  ignore_consumers boolean default false,
  most bigint default 10000
)
returns table (removed bigint, held_back_by text)
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

  if not ignore_consumers then
    for slowest in select * from penstock.slowest_consumer(target) loop
      -- whether this one still needs a message that could go otherwise
      if exists (
        select from message_store.messages m
        where is_stream and m.stream_name = target and m.position < stream_bound
          and m.global_position < global_bound
          and (m.position >= slowest.needs_position
            or m.global_position >= slowest.needs_global_position)
      ) or exists (
        select from message_store.messages m
        where not is_stream
          and (message_store.category(m.stream_name), m.global_position)
            >= (category, slowest.needs_global_position)
          and (message_store.category(m.stream_name), m.global_position) < (category, global_bound)
      ) then
        held_back_by := slowest.consumer_id;
      end if;
      global_bound := least(global_bound, slowest.needs_global_position);
      stream_bound := least(stream_bound, slowest.needs_position);
    end loop;
  end if;

  if is_stream then
    select array(
      select m.global_position from message_store.messages m
      where m.stream_name = target
        and m.position < least(stream_bound, message_store.stream_version(target))
        and m.global_position < global_bound
      order by m.position limit most)
    into oldest;
  else
    select array(
      select m.global_position from message_store.messages m
      where (message_store.category(m.stream_name), m.global_position) >= (category, 0)
        and (message_store.category(m.stream_name), m.global_position) < (category, global_bound)
        and m.position < (
          select max(l.position) from message_store.messages l
          where l.stream_name = m.stream_name)
      order by message_store.category(m.stream_name), m.global_position limit most)
    into oldest;
  end if;

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
  return next;
end
$$;

revoke execute on function
  penstock.retain(varchar, bigint, timestamptz, bigint, boolean, bigint) from public;

-- At most how many messages of a category were removed after this position: what a reader there missed.
create or replace function penstock.missed("category" varchar, after bigint)
returns bigint language sql stable
as $$
  select coalesce(sum(r.message_count), 0)::bigint
  from penstock.retentions r
  where r.category = missed.category and r.highest_position > missed.after
$$;
