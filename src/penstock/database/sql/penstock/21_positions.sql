-- How far each consumer has come, one row a consumer, for those that keep their position in a table.
--
-- A position is changed only from the value that its consumer last saw. So two processes that run
-- under one consumer id, or a seek behind a running consumer's back, are noticed and not overwritten.

create table if not exists penstock.consumer_positions (
  consumer_id text primary key,            -- {category}-{consumer id}
  position bigint not null,                -- global position of the last message that was handled
  save_id uuid,                            -- of the save that put it there; null: an operator did
  updated_at timestamptz not null default now()
);

create index if not exists consumer_positions_updated on penstock.consumer_positions (updated_at);

-- Move a consumer from `previous` (null: it has no position yet) to `position`. A call may be repeated
-- with the same `save_id`, as a client does whose connection broke before the answer came.
--
-- Without `durable` the commit does not wait for the disk. If the server crashes within that moment,
-- the position is the one before and some messages come again, which is what at least once means. Only
-- for a transaction that does nothing else: never where messages are written.
create or replace function penstock.save_position(
  consumer_id text, "position" bigint, previous bigint, save_id uuid, durable boolean default true)
returns bigint language plpgsql
as $$
#variable_conflict use_column
declare
  found_position bigint;
begin
  if not save_position.durable then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  insert into penstock.consumer_positions as p (consumer_id, position, save_id)
  values (save_position.consumer_id, save_position.position, save_position.save_id)
  on conflict (consumer_id) do update
    set position = excluded.position, save_id = excluded.save_id, updated_at = clock_timestamp()
    where p.position = save_position.previous or p.save_id = save_position.save_id;
  if found then
    return save_position.position;
  end if;

  select p.position into found_position from penstock.consumer_positions p
  where p.consumer_id = save_position.consumer_id;
  raise exception using
    errcode = 'PS030',
    message = format('consumer %s is at position %s, not %s',
      save_position.consumer_id, found_position, coalesce(save_position.previous::text, 'new')),
    detail = jsonb_build_object('consumer_id', save_position.consumer_id,
      'expected', save_position.previous, 'actual', found_position);
end
$$;

-- Put a consumer at a position, whatever it was: for the operator, not for the consumer.
create or replace function penstock.set_position(consumer_id text, "position" bigint)
returns void language sql
as $$
  insert into penstock.consumer_positions (consumer_id, position)
  values (set_position.consumer_id, set_position.position)
  on conflict (consumer_id) do update
    set position = excluded.position, save_id = null, updated_at = clock_timestamp()
$$;

-- The position that a message of a position stream holds: a whole number, as clients take it; else null.
create or replace function penstock.position_in(data jsonb)
returns bigint language sql immutable parallel safe
as $$
  select case
    when jsonb_typeof(position_in.data -> 'position') = 'number'
      and position_in.data ->> 'position' ~ '^[0-9]{1,19}$'
    then case
      when (position_in.data ->> 'position')::numeric <= 9223372036854775807
      then (position_in.data ->> 'position')::bigint end
    end
$$;

-- The streams in which consumers of a category keep their positions. It reads all positions that are
-- kept there, by their category: names cannot be looked up by how they begin, in every collation.
create or replace function penstock.position_streams(category varchar)
returns table (stream_name varchar)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select distinct m.stream_name::varchar from message_store.messages m
  where message_store.category(m.stream_name) = position_streams.category || ':position'
    and message_store.id(m.stream_name) is not null  -- no consumer's, but a stream named x:position
$$;

-- What consumers have stored, in the table or in a position stream. A position is null where a position
-- stream ends with something else.
create or replace function penstock.stored_positions()
returns table (
  category varchar, consumer_id varchar, kept_in text, "position" bigint, updated_at timestamptz)
language sql volatile
as $$
  with kept as (
    -- the categories whose consumers have position streams
    select left(c.category, -length(':position'))::varchar as name from penstock.categories() c
    where c.category like '%:position'
  )
  select message_store.category(p.consumer_id), message_store.id(p.consumer_id), 'table',
    p.position, p.updated_at
  from penstock.consumer_positions p
  union all
  -- the last message of each position stream, unless the table is ahead of it: then it is history
  select kept.name, message_store.id(s.stream_name), 'stream',
    penstock.position_in(last.data::jsonb), last.time at time zone 'utc'
  from kept
  cross join lateral penstock.position_streams(kept.name) s
  cross join lateral message_store.get_last_stream_message(s.stream_name) last
  where not exists (
    select from penstock.consumer_positions p
    where p.consumer_id = kept.name || '-' || message_store.id(s.stream_name))
$$;

-- Every consumer that has stored a position, and its backlog: `behind` counts the messages after its
-- position, but no more than `most` of them.
create or replace function penstock.consumers(most bigint default 10000)
returns table (
  category varchar,
  consumer_id varchar,
  kept_in text,
  "position" bigint,
  updated_at timestamptz,
  head bigint,
  behind bigint,
  oldest_waiting timestamptz
)
language sql volatile
as $$
  select s.category, s.consumer_id, s.kept_in, s.position, s.updated_at,
    penstock.category_head(s.category), waiting.count, waiting.oldest at time zone 'utc'
  from penstock.stored_positions() s
  cross join lateral (
    select count(*) as count, min(w.time) as oldest from (
      (select m.time from message_store.messages m
       where s.category <> '$all'
         and (message_store.category(m.stream_name), m.global_position)
           > (s.category, coalesce(s.position, 0))
         and (message_store.category(m.stream_name), m.global_position)
           <= (s.category, 9223372036854775807)
       order by message_store.category(m.stream_name), m.global_position
       limit most)
      union all
      (select m.time from message_store.messages m
       where s.category = '$all' and m.global_position > coalesce(s.position, 0)
         and not penstock.is_bookkeeping(m.stream_name)
       order by m.global_position
       limit most)
    ) w
  ) waiting
  order by s.category, s.consumer_id, s.kept_in
$$;

-- The global position right before the first message of a category (or of `$all`) that was written at
-- or after a moment; the head, if there is none.
create or replace function penstock.position_before(category varchar, moment timestamptz)
returns bigint language sql volatile
as $$
  select coalesce(
    (select m.global_position - 1 from message_store.messages m
     where position_before.category <> '$all'
       and (message_store.category(m.stream_name), m.global_position)
         >= (position_before.category, 0)
       and (message_store.category(m.stream_name), m.global_position)
         <= (position_before.category, 9223372036854775807)
       and m.time >= position_before.moment at time zone 'utc'
     order by message_store.category(m.stream_name), m.global_position
     limit 1),
    (select m.global_position - 1 from message_store.messages m
     where position_before.category = '$all'
       and m.time >= position_before.moment at time zone 'utc'
     order by m.global_position
     limit 1),
    penstock.category_head(position_before.category))
$$;
