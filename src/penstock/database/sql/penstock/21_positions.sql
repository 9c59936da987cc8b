-- The positions of consumers that keep them in a table, one row for each consumer.
--
-- A position is changed only from the value that its consumer last read. So two processes that run
-- under one consumer id, or a seek while a consumer runs, cause an error and overwrite nothing.

-- A versioned row, see 01_schema.sql.
create table if not exists penstock.consumer_positions (
  consumer_id text not null,               -- {category}-{consumer id}
  version bigint not null default 0,
  position bigint not null,                -- global position of the last message that was handled
  save_id uuid,                            -- of the save that put it there; null: an operator did
  updated_at timestamptz not null default now(),
  primary key (consumer_id, version)
);

-- The newest version of a consumer's row, null if there is none.
create or replace function penstock.latest_position(consumer_id text, locked boolean default false)
returns penstock.consumer_positions language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
#variable_conflict use_column
declare
  latest penstock.consumer_positions;
begin
  loop
    select p.* into latest from penstock.consumer_positions p
    where p.consumer_id = latest_position.consumer_id
    order by p.consumer_id desc, p.version desc limit 1;
    exit when not found or not locked;
    select p.* into latest from penstock.consumer_positions p
    where p.consumer_id = latest.consumer_id and p.version = latest.version for update;
    exit when found;  -- else another transaction has replaced it
  end loop;
  return latest;
end
$$;

-- Replace the version that the caller has locked, or insert the first. False if another transaction did.
create or replace function penstock.replace_position(
  old penstock.consumer_positions, consumer_id text, "position" bigint, save_id uuid)
returns boolean language plpgsql volatile
as $$
#variable_conflict use_column
begin
  delete from penstock.consumer_positions p
  where p.consumer_id = old.consumer_id and p.version = old.version;
  insert into penstock.consumer_positions (consumer_id, version, position, save_id, updated_at)
  values (replace_position.consumer_id, coalesce(old.version + 1, 0), replace_position.position,
    replace_position.save_id, clock_timestamp())
  on conflict (consumer_id, version) do nothing;
  return found;
end
$$;

-- The newest versions of all rows, by a skip scan of the index.
create or replace function penstock.all_positions()
returns setof penstock.consumer_positions language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  with recursive latest as (
    -- the newest row of the last consumer, and then that of each consumer before
    (select p.* from penstock.consumer_positions p
     order by p.consumer_id desc, p.version desc limit 1)
    union all
    select earlier.* from latest
    cross join lateral (
      select p.* from penstock.consumer_positions p
      where p.consumer_id < latest.consumer_id
      order by p.consumer_id desc, p.version desc limit 1
    ) earlier
  )
  select latest.* from latest
$$;

-- Move a consumer from `previous` (null: it has no position yet) to `position`. A call can be repeated
-- with the same `save_id`, as by a client whose connection broke before the answer arrived.
--
-- Without `durable` the commit does not wait for the disk. If the server crashes before it is written,
-- the position is an earlier one. A consumer that starts then handles some messages again, as at-least-once
-- delivery allows. One that has run all the time may not even have noticed, and saves its next position: the
-- row is older than `previous`, and its `save_id` has the same first half, which is the writer's.
-- Only for a transaction that does nothing else: never where messages are written.
create or replace function penstock.save_position(
  consumer_id text, "position" bigint, previous bigint, save_id uuid, durable boolean default true)
returns bigint language plpgsql
as $$
declare
  old penstock.consumer_positions;
begin
  if not save_position.durable then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  loop
    old := penstock.latest_position(consumer_id, true);
    exit when old.position is distinct from previous and old.save_id is distinct from save_id
      and (old.position < previous and left(old.save_id::text, 18) = left(save_id::text, 18)) is not true;
    if penstock.replace_position(old, consumer_id, save_position.position, save_id) then
      return save_position.position;
    end if;
  end loop;

  raise exception using
    errcode = 'PS030',
    message = format('consumer %s is at position %s, not %s', consumer_id,
      coalesce(old.position::text, 'new'), coalesce(previous::text, 'new')),
    detail = jsonb_build_object('consumer_id', consumer_id,
      'expected', previous, 'actual', old.position);
end
$$;

-- Move a consumer to a position, whatever it was: for operators, not for consumers.
create or replace function penstock.set_position(consumer_id text, "position" bigint)
returns void language plpgsql
as $$
begin
  loop
    exit when penstock.replace_position(
      penstock.latest_position(consumer_id, true), consumer_id, set_position.position, null);
  end loop;
end
$$;

-- Remove a consumer: its row, its position stream and its stream of parked messages. A running one gets an
-- error at its next save, since the position that it saw last is not stored any more. The locks are taken in
-- the order in which a consumer takes them that parks a message and saves its position. Returns whether there
-- was such a consumer.
create or replace function penstock.remove_consumer(category varchar, consumer_id varchar)
returns boolean language plpgsql volatile security definer
set search_path = pg_catalog
set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  streams constant varchar[] := array[
    category || ':parked-' || consumer_id, category || ':position-' || consumer_id];
  stream varchar;
  old penstock.consumer_positions;
  removed bigint;
begin
  perform penstock.refuse_old_snapshot();
  foreach stream in array streams loop
    perform penstock.lock_stream(stream);
  end loop;
  old := penstock.latest_position(category || '-' || consumer_id, true);
  delete from penstock.consumer_positions p
  where p.consumer_id = old.consumer_id and p.version = old.version;
  removed := found::int;
  foreach stream in array streams loop
    removed := removed + penstock.delete_messages(stream, array(
      select m.global_position from message_store.messages m where m.stream_name = stream));
  end loop;
  return removed > 0;
end
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

-- The streams in which consumers of a category keep their positions. It reads all messages of their
-- category: not every collation can find names by a prefix.
create or replace function penstock.position_streams(category varchar)
returns table (stream_name varchar)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select distinct m.stream_name::varchar from message_store.messages m
  where message_store.category(m.stream_name) = position_streams.category || ':position'
    and message_store.id(m.stream_name) is not null  -- not a stream named x:position, without an id
$$;

-- The position of one consumer, from the table or else from its position stream. It is null where the stream
-- ends with another kind of message.
create or replace function penstock.stored_position(of_category varchar, of_consumer varchar)
returns table (
  category varchar, consumer_id varchar, kept_in text, "position" bigint, updated_at timestamptz)
language sql volatile
as $$
  select of_category, of_consumer, kept.*
  from penstock.latest_position(of_category || '-' || of_consumer) row
  cross join lateral (
    select 'table', row.position, row.updated_at where row.consumer_id is not null
    union all
    (select 'stream', penstock.position_in(m.data), m.time at time zone 'utc'
     from message_store.messages m
     where row.consumer_id is null
       and m.stream_name = of_category || ':position-' || of_consumer
     order by m.position desc limit 1)
  ) kept
$$;

-- The positions of all consumers. `past` is how many names of other categories the search for position
-- streams goes past, see penstock.stream_names.
create or replace function penstock.stored_positions(past bigint default 1000)
returns table (
  category varchar, consumer_id varchar, kept_in text, "position" bigint, updated_at timestamptz)
language sql volatile
as $$
  select message_store.category(p.consumer_id), message_store.id(p.consumer_id), 'table',
    p.position, p.updated_at
  from penstock.all_positions() p
  union all
  select p.*
  from penstock.streams_of_consumers('position', stored_positions.past) s
  cross join lateral penstock.stored_position(s.category, s.consumer_id) p
  where p.kept_in = 'stream'
$$;

-- What waits in a parked stream, by its last 1,000 entries: how many messages were neither handled nor
-- dropped since they were parked, whether there may be more, and the error of the newest.
create or replace function penstock.parked_summary(stream_name varchar)
returns table (parked bigint, at_least boolean, last_error text)
language sql stable
as $$
  select count(*) filter (where e.waits), coalesce(sum(e.entries), 0) = 1000,
    (array_agg(e.error order by e.at desc) filter (where e.waits))[1]
  from (
    -- each parked message, and whether it was parked after it was last handled or dropped
    select max(e.position) as at, count(*) as entries,
      (array_agg(e.error order by e.position desc) filter (where e.error is not null))[1] as error,
      coalesce(max(e.position) filter (where e.type = 'Parked')
        > coalesce(max(e.position) filter (where e.type in ('Handled', 'Dropped')), -1), false)
        as waits
    from (
      select m.type, m.position, left(m.data ->> 'error', 1000) as error,
        coalesce(m.data #>> '{message,global_position}', m.data ->> 'global_position') as parked
      from message_store.messages m
      where m.stream_name = parked_summary.stream_name order by m.position desc limit 1000
    ) e
    group by e.parked
  ) e
$$;

-- Consumers that have stored a position, by category and id, after (`after_category`, `after_id`), at most
-- `page_size`; or, if `of_category` is given, that one. `behind` counts the messages after its position, but no
-- more than `most` of them.
create or replace function penstock.consumers(
  most bigint default 10000, after_category varchar default '', after_id varchar default '',
  page_size bigint default 1000, of_category varchar default null, of_consumer varchar default null)
returns table (
  category varchar,
  consumer_id varchar,
  kept_in text,
  "position" bigint,
  updated_at timestamptz,
  head bigint,
  behind bigint,
  oldest_waiting timestamptz,
  parked bigint,
  parked_at_least boolean,
  last_error text
)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with chosen as materialized (
    (select p.* from penstock.stored_positions() p
     where of_category is null and (p.category, p.consumer_id) > (after_category, after_id)
     order by p.category, p.consumer_id limit page_size)
    union all
    select p.* from penstock.stored_position(of_category, of_consumer) p
    where of_category is not null
  )
  select s.category, s.consumer_id, s.kept_in, s.position, s.updated_at,
    penstock.category_head(s.category), waiting.count, waiting.oldest at time zone 'utc',
    parked.parked, parked.at_least, parked.last_error
  from chosen s
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
  cross join lateral penstock.parked_summary(
    (s.category || ':parked-' || s.consumer_id)::varchar) parked
  order by s.category, s.consumer_id
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
