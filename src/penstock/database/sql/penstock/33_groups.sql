-- Partitioned consumer groups: the log split into partitions by attributes of the user's choice, each
-- handled in order by one worker at a time.
--
-- A partition is a combination of attribute values, such as (course_name = Algebra, user_id = joe).
-- It is created by the first message that carries all of the group's attributes. A message that
-- carries only some of them belongs to every partition that has the same values for those.
--
-- The promise: a claim, an ack and an idle poll cost the same however long the log is, however many
-- partitions there are, however hot one key is, and however much was handled before while an old
-- snapshot keeps vacuum from removing it. How it is kept:
--
-- * Each message is *routed* once per group (34_group_routing.sql). Routing writes one feed row: the
--   message's projection on the group's attributes, with gaps: (Algebra, joe), (Algebra, -), (-, joe).
--   A partition of n attributes reads its 2^n - 1 feeds in the order of positions.
-- * `partition_states` and `group_progress`, which change with every call, have versioned rows
--   (01_schema.sql).
-- * Partitions that can be claimed are in a queue, an index by `queue_position`. A claim reads it from
--   a *claim cursor* on, so that it does not visit the dead entries before (35_group_queue.sql).
-- * A worker claims a partition with its messages, and acknowledges or releases it (36_group_claims.sql).
-- * A group is removed in batches (37_group_removal.sql).
--
-- A transaction that changes the state of a partition first locks its row in `partitions`, which itself
-- never changes, and reads the state in a later statement. A transaction that routes, adds a type or resets
-- the group holds the group's advisory lock, (1885693286, id of the group), until it ends: so it sees
-- everything that was routed before, and `group_progress` has one writer at a time.
--
-- This file has the tables of groups, the functions that read and replace their rows, and what a group is
-- as a whole: to register it, to stop it, to reset it.

create table if not exists penstock.consumer_groups (
  id integer generated always as identity primary key,
  group_id text not null unique,
  status text not null default 'active' check (status in ('active', 'stopped')),
  partition_by text[],                     -- sorted; set by the first claim
  handled_types text[] not null default '{}',  -- all that any claim has named, sorted
  narrowed boolean not null default false, -- some claim has named fewer types
  replayed_by text[],                      -- partition_by before the last reset
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

-- How far the messages of a group are routed. A versioned row, see 01_schema.sql.
create table if not exists penstock.group_progress (
  group_pk integer not null,
  version bigint generated always as identity,
  routed_to bigint not null default 0,     -- every message up to here is in the feeds
  caught_up_at bigint not null default -1,    -- the log's last position when everything was routed
  backfills jsonb not null default '{}',   -- type_id: how far a type that is new to the group is routed
  fanned_out bigint not null default 0,    -- the last of group_fanouts that is finished
  fanned_to bigint not null default 0,     -- the last partition that was updated for the next one
  rechecked bigint not null default 0,     -- the last of group_rechecks that is done
  updated_at timestamptz default now(),    -- null: before it was recorded
  primary key (group_pk, version)
);

-- The types that a group routes: those it handles, which are all that any claim has named, and those
-- whose messages create partitions. A new one is routed from the start of the log.
create table if not exists penstock.group_types (
  group_pk integer not null,
  type_id integer not null,
  handled boolean not null,
  primary key (group_pk, type_id)
);

create table if not exists penstock.group_feeds (
  group_pk integer not null,
  feed bigint not null,
  global_position bigint not null,
  type_id integer not null,
  primary key (group_pk, feed, global_position)
);

-- For claims that name fewer types than the group handles.
create index if not exists group_feeds_type on penstock.group_feeds
  (group_pk, feed, type_id, global_position);

-- The partitions. A row never changes; it is locked to change the partition's state. Two partitions may have
-- the same `feed`, which is a hash; they differ in their values.
create table if not exists penstock.partitions (
  offset_id bigint generated always as identity primary key,
  group_pk integer not null,
  partition_key text not null,
  partition_values text[] not null,
  feed bigint not null,                    -- of the messages that carry all of these values
  feeds bigint[] not null,                 -- and of those that carry some
  replaying_to bigint not null default 0   -- messages up to here were handled before a reset
);
create index if not exists partitions_feeds on penstock.partitions (group_pk, feed);

-- The state of each partition, a versioned row. A partition is ready (`queue_position`), claimed or waiting
-- for a retry (`due`), parked, or has nothing to do.
create table if not exists penstock.partition_states (
  offset_id bigint not null,
  version bigint generated always as identity,
  group_pk integer not null,
  xid xid8 not null default pg_current_xact_id(),  -- the transaction that wrote this row
  last_position bigint not null default 0,
  next_position bigint,                    -- the first message that is not handled
  queue_position bigint,                   -- if it can be claimed
  due timestamptz,                         -- when it can be claimed: the end of the lease or of a delay
  queued boolean not null generated always as (queue_position is not null or due is not null) stored,
  token uuid,
  claimed_by text,
  claimed_at timestamptz,
  claimed_types text[] not null default '{}',  -- those of the claim, if not all of the group's
  claim_order text not null default 'oldest' check (claim_order in ('oldest', 'round_robin')),
  attempts integer not null default 0,
  error text,
  parked_at timestamptz,
  finished_token uuid,                     -- the last claim that was acknowledged or released
  finished_call text,                      -- and by which call
  primary key (offset_id, version)
) with (autovacuum_vacuum_scale_factor = 0.02);

create index if not exists partition_states_ready on penstock.partition_states
  (group_pk, queue_position, version) where queue_position is not null;
create index if not exists partition_states_due on penstock.partition_states
  (group_pk, due, version) where due is not null;
create index if not exists partition_states_changed on penstock.partition_states
  (group_pk, xid, version) where queued;
create index if not exists partition_states_pending on penstock.partition_states
  (group_pk, next_position, version) where next_position is not null and parked_at is null;
create index if not exists partition_states_parked on penstock.partition_states
  (group_pk, next_position, version) where parked_at is not null;

-- Where claims begin to read the queue, see 35_group_queue.sql. The newest is the one with the highest id.
create table if not exists penstock.claim_cursors (
  group_pk integer not null,
  types_key bigint not null,
  id bigint generated always as identity,
  types text[] not null,                   -- that the claims name; none: all of the group's
  queue_position bigint not null,
  version bigint not null,
  due timestamptz not null,
  next_position bigint not null,
  next_version bigint not null,
  partitions_before bigint[] not null,     -- partitions in the queue before the cursor
  next_xid xid8 not null,                  -- states that this transaction or a later one wrote,
  open_xids xid8[] not null,               -- or one of these,
  own_xid xid8 not null,                   -- or the one that made the cursor,
  own_version bigint not null,             -- after this version, are not covered by the cursor
  primary key (group_pk, types_key, id)
);

-- The last position that each partition had handled before the group was reset.
create table if not exists penstock.group_replays (
  group_pk integer not null,
  feed bigint not null,
  partition_values text[],                 -- null: not recorded, the feed alone counts
  global_position bigint not null
);
create index if not exists group_replays_feed on penstock.group_replays (group_pk, feed);

-- Which partitions read a feed with gaps.
create table if not exists penstock.feed_partitions (
  group_pk integer not null,
  feed bigint not null,
  offset_id bigint not null,
  primary key (group_pk, feed, offset_id)
);

-- Messages in a feed with gaps for which not all partitions have been updated yet: the rows after
-- `group_progress.fanned_out`.
create table if not exists penstock.group_fanouts (
  group_pk integer not null,
  id bigint generated always as identity,
  feed bigint not null,
  global_position bigint not null,
  primary key (group_pk, id)
);

-- Partitions that routing could not update, since their row was locked: the rows after
-- `group_progress.rechecked`.
create table if not exists penstock.group_rechecks (
  group_pk integer not null,
  id bigint generated always as identity,
  offset_id bigint not null,
  primary key (group_pk, id)
);

-- Groups that were removed, and of which rows are left: see 37_group_removal.sql.
create table if not exists penstock.removed_groups (
  id integer primary key,
  group_id text not null,
  removed_at timestamptz not null default now()
);

-- The key of a projection: the values in the order of the group's attributes, null for a gap. The text
-- of an array writes a null differently from every value.
create or replace function penstock.feed_key(projection text[])
returns bigint language sql immutable parallel safe
as $$ select hashtextextended(projection::text, 0) $$;

-- The keys of all feeds that a partition reads: every combination of its values and gaps, except gaps only.
-- Without `complete`, only those that it shares with other partitions.
create or replace function penstock.feed_keys(partition_values text[], complete boolean default true)
returns bigint[] language sql immutable parallel safe
as $$
  select array(
    select distinct penstock.feed_key(array(
      select case when (choice.kept >> (i - 1)) & 1 = 1 then partition_values[i] end
      from generate_series(1, cardinality(partition_values)) i order by i))
    from generate_series(1, (1 << cardinality(partition_values)) - 1 - (not complete)::int)
      as choice(kept))
$$;

-- Such as course_name:Algebra|user_id:joe; a backslash goes before a separator within a value.
create or replace function penstock.partition_key(names text[], partition_values text[])
returns text language sql immutable parallel safe
as $$
  select array_to_string(array(
    select replace(replace(replace(p.name, '\', '\\'), '|', '\|'), ':', '\:') || ':'
      || replace(replace(replace(p.value, '\', '\\'), '|', '\|'), ':', '\:')
    from unnest(names, partition_values) with ordinality as p(name, value, ordinality)
    order by p.ordinality), '|')
$$;

-- The projection of a message on the group's attributes. One that its type does not declare is a gap.
create or replace function penstock.projection(names text[], declared text[], data jsonb)
returns text[] language sql immutable parallel safe
as $$
  select array(
    select case when n.name = any (declared) then data ->> n.name end
    from unnest(names) with ordinality as n(name, number) order by n.number)
$$;

-- The progress of a group: one row, once the group is registered.
create or replace function penstock.latest_group_progress(group_pk integer)
returns setof penstock.group_progress language sql stable rows 1
as $$
  select p.* from penstock.group_progress p
  where p.group_pk = latest_group_progress.group_pk order by p.version desc limit 1
$$;

-- Replace the progress of a group. The caller holds the group's lock.
create or replace function penstock.replace_group_progress(
  old penstock.group_progress, new penstock.group_progress)
returns void language plpgsql volatile
as $$
begin
  insert into penstock.group_progress
    (group_pk, routed_to, caught_up_at, backfills, fanned_out, fanned_to, rechecked)
  values (new.group_pk, new.routed_to, new.caught_up_at, new.backfills, new.fanned_out, new.fanned_to,
    new.rechecked);
  delete from penstock.group_progress p
  where p.group_pk = old.group_pk and p.version = old.version;
end
$$;

-- The state of a partition: one row.
create or replace function penstock.latest_partition_state(offset_id bigint)
returns setof penstock.partition_states language sql stable rows 1
as $$
  select s.* from penstock.partition_states s
  where s.offset_id = latest_partition_state.offset_id order by s.version desc limit 1
$$;

-- Replace the state of a partition. The caller holds the lock of the partition's row.
create or replace function penstock.replace_partition_state(
  old penstock.partition_states, new penstock.partition_states)
returns void language plpgsql volatile
as $$
begin
  delete from penstock.partition_states s
  where s.offset_id = old.offset_id and s.version = old.version;
  insert into penstock.partition_states
    (offset_id, group_pk, last_position, next_position, queue_position, due, token, claimed_by, claimed_at,
     claimed_types, claim_order, attempts, error, parked_at, finished_token, finished_call)
  values
    (new.offset_id, new.group_pk, new.last_position, new.next_position, new.queue_position, new.due, new.token,
     new.claimed_by, new.claimed_at, new.claimed_types, new.claim_order, new.attempts, new.error,
     new.parked_at, new.finished_token, new.finished_call);
end
$$;

-- The position in the queue of a partition that can be claimed: that of its first message or, in turn
-- ('round_robin'), after everything that is routed so far.
create or replace function penstock.queue_position(claim_order text, next_position bigint, routed_to bigint)
returns bigint language sql immutable parallel safe
as $$
  select case
    when claim_order = 'round_robin' and next_position is not null
    then greatest(next_position, routed_to + 1)
    else next_position end
$$;

create or replace function penstock.find_group(group_id text)
returns penstock.consumer_groups language plpgsql stable
as $$
declare
  found_group penstock.consumer_groups;
begin
  select g.* into found_group from penstock.consumer_groups g where g.group_id = find_group.group_id;
  if not found then
    perform penstock.refuse_unknown_group(group_id);
  end if;
  return found_group;
end
$$;

create or replace function penstock.refuse_unknown_group(group_id text)
returns void language plpgsql
as $$
begin
  raise exception using errcode = 'PS044',
    message = format('no consumer group %s was registered, or it was removed', group_id),
    detail = jsonb_build_object('group_id', group_id);
end
$$;

create or replace function penstock.register_consumer_group(group_id text)
returns void language sql volatile
as $$
  with new as (
    insert into penstock.consumer_groups (group_id) values (register_consumer_group.group_id)
    on conflict (group_id) do nothing
    returning id
  )
  insert into penstock.group_progress (group_pk) select n.id from new n
$$;

create or replace function penstock.consumer_group_active(group_id text)
returns boolean language sql stable
as $$
  select exists (
    select from penstock.consumer_groups g
    where g.group_id = consumer_group_active.group_id and g.status = 'active')
$$;

create or replace function penstock.set_consumer_group_status(group_id text, status text)
returns void language plpgsql volatile
as $$
begin
  perform penstock.find_group(group_id);
  update penstock.consumer_groups g
  set status = set_consumer_group_status.status, updated_at = clock_timestamp()
  where g.group_id = set_consumer_group_status.group_id;
end
$$;

-- Remove all offsets: every partition starts again, and open claims become stale. The last position of each
-- partition is kept, so that a claim can tell whether its messages are a replay.
create or replace function penstock.reset_consumer_group(group_id text)
returns void language plpgsql volatile
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
begin
  perform penstock.refuse_old_snapshot();
  perform pg_advisory_xact_lock(1885693286, own.id);
  update penstock.consumer_groups g
  set partition_by = null, handled_types = '{}', narrowed = false,
    replayed_by = coalesce(g.partition_by, g.replayed_by), updated_at = clock_timestamp()
  where g.id = own.id;
  if not found then
    perform penstock.refuse_unknown_group(group_id);  -- it was removed meanwhile
  end if;
  perform from penstock.partitions p where p.group_pk = own.id order by p.offset_id for update;

  with handled as (
    -- the partitions that have handled a message
    select p.feed, p.partition_values, greatest(s.last_position, p.replaying_to) as global_position
    from penstock.partitions p cross join lateral penstock.latest_partition_state(p.offset_id) s
    where p.group_pk = own.id and greatest(s.last_position, p.replaying_to) > 0
  ), known as (
    -- those that had handled one before an earlier reset, too
    update penstock.group_replays r
    set global_position = greatest(r.global_position, h.global_position)
    from handled h
    where r.group_pk = own.id and r.feed = h.feed and r.partition_values = h.partition_values
    returning r.feed, r.partition_values
  )
  insert into penstock.group_replays (group_pk, feed, partition_values, global_position)
  select own.id, h.feed, h.partition_values, h.global_position from handled h
  where not exists (
    select from known k where k.feed = h.feed and k.partition_values = h.partition_values);

  delete from penstock.partition_states s using penstock.partitions p
  where p.group_pk = own.id and s.offset_id = p.offset_id;
  delete from penstock.partitions p where p.group_pk = own.id;
  delete from penstock.claim_cursors f where f.group_pk = own.id;
  delete from penstock.group_rechecks r where r.group_pk = own.id;
  delete from penstock.group_fanouts f where f.group_pk = own.id;
  delete from penstock.feed_partitions f where f.group_pk = own.id;
  delete from penstock.group_feeds f where f.group_pk = own.id;
  delete from penstock.group_types t where t.group_pk = own.id;
  delete from penstock.group_progress p where p.group_pk = own.id;
  insert into penstock.group_progress (group_pk) values (own.id);
end
$$;

-- Delete everything about all groups but the groups themselves.
create or replace function penstock.delete_group_rows()
returns void language sql volatile
as $$
  delete from penstock.group_rechecks;
  delete from penstock.group_fanouts;
  delete from penstock.feed_partitions;
  delete from penstock.claim_cursors;
  delete from penstock.partition_states;
  delete from penstock.partitions;
  delete from penstock.group_feeds;
  delete from penstock.group_replays;
  delete from penstock.group_types;
  delete from penstock.group_progress;
  delete from penstock.removed_groups
$$;

create or replace function penstock.clear_consumer_groups()
returns void language sql volatile
as $$
  select penstock.delete_group_rows();
  delete from penstock.consumer_groups
$$;

-- After a TRUNCATE of the log, when positions may start again: groups keep their names and status, and are
-- as new otherwise. Open claims become stale.
create or replace function penstock.forget_group_positions()
returns void language plpgsql volatile
as $$
begin
  begin
    truncate penstock.group_rechecks, penstock.group_fanouts, penstock.feed_partitions,
      penstock.claim_cursors, penstock.partition_states, penstock.partitions, penstock.group_feeds,
      penstock.group_replays, penstock.group_types, penstock.group_progress, penstock.removed_groups;
  exception
    when object_in_use then  -- the same statement truncates some of them
      perform penstock.delete_group_rows();
  end;
  update penstock.consumer_groups g
  set partition_by = null, handled_types = '{}', narrowed = false, replayed_by = null,
    updated_at = clock_timestamp();
  insert into penstock.group_progress (group_pk) select g.id from penstock.consumer_groups g;
end
$$;
