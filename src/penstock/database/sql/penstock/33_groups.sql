-- Partitioned consumer groups: the log cut into partitions of the user's choosing, each handled in
-- order by one worker at a time.
--
-- A partition is a combination of attribute values, such as (course_name = Algebra, user_id = joe).
-- It comes to be with the first message that carries all of the group's attributes. A message that
-- carries only some of them belongs to every partition that agrees with it.
--
-- The promise: a claim, an ack and a look for work cost the same however long the log is, however many
-- partitions there are, and however hot one key is. How it is kept: each message is *routed* once per
-- group. Routing writes one feed row: the message's projection on the group's attributes, with gaps:
-- (Algebra, joe), (Algebra, -), (-, joe). A partition of n attributes reads its 2^n - 1 feeds in the
-- order of positions. A partition's `next_position` is the first message it has not handled; that
-- column is indexed, and a claim is one look at it.
--
-- `next_position` changes only under the partition's row lock: an ack locks the row, and then looks
-- for the next message in a statement of its own. The router never waits: partitions whose rows it
-- cannot lock, it puts on a list, and looks at them the next time. A message that touches very many
-- partitions is fanned out in slices.
--
-- Who routes, enrols a type or resets the group holds the group's lock, 1885693286 with the group's
-- number, until the end of the transaction: so each sees all that those before it have done.

create table if not exists penstock.consumer_groups (
  id integer generated always as identity primary key,
  group_id text not null unique,
  status text not null default 'active' check (status in ('active', 'stopped')),
  partition_by text[],                     -- sorted; set by the first claim
  handled_types text[] not null default '{}',  -- all that any claim has named
  routed_to bigint not null default 0,     -- every message up to here is in the feeds
  looked_at bigint not null default -1,    -- the log's last position when there was nothing to route
  replayed_by text[],                      -- partition_by before the last reset
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

-- The types that a group routes: those it handles, which are all that any claim has named, and those
-- whose messages reveal partitions. A new one is routed from the start.
create table if not exists penstock.group_types (
  group_pk integer not null,
  type_id integer not null,
  handled boolean not null,
  routed_to bigint,                        -- null: as far as the group
  primary key (group_pk, type_id)
);

create table if not exists penstock.group_feeds (
  group_pk integer not null,
  feed bigint not null,
  global_position bigint not null,
  type_id integer not null,
  primary key (group_pk, feed, global_position)
);

create table if not exists penstock.partitions (
  offset_id bigint generated always as identity primary key,
  group_pk integer not null,
  partition_key text not null,
  partition_values text[] not null,
  feed bigint not null,                    -- of the messages that carry all of these values
  feeds bigint[] not null,                 -- and of those that carry some
  last_position bigint not null default 0,
  next_position bigint,
  replaying_to bigint not null default 0,  -- messages up to here were handled before a reset
  token uuid,
  claimed_by text,
  claimed_at timestamptz,
  lease_until timestamptz,
  attempts integer not null default 0,
  retry_at timestamptz,
  error text,
  parked_at timestamptz
);

create unique index if not exists partitions_feed on penstock.partitions (group_pk, feed);
create index if not exists partitions_ready on penstock.partitions
  (group_pk, next_position, offset_id)
  where next_position is not null and token is null and parked_at is null;
create index if not exists partitions_claimed on penstock.partitions (group_pk, lease_until)
  where token is not null;
create index if not exists partitions_parked on penstock.partitions (group_pk, parked_at)
  where parked_at is not null;

-- How far each partition had come before the group was reset.
create table if not exists penstock.group_replays (
  group_pk integer not null,
  feed bigint not null,
  global_position bigint not null,
  primary key (group_pk, feed)
);

-- Which partitions read a feed with gaps.
create table if not exists penstock.feed_partitions (
  group_pk integer not null,
  feed bigint not null,
  offset_id bigint not null,
  primary key (group_pk, feed, offset_id)
);

-- Messages in a feed with gaps, of which not all partitions have been told yet.
create table if not exists penstock.group_fanouts (
  id bigint generated always as identity primary key,
  group_pk integer not null,
  feed bigint not null,
  global_position bigint not null,
  after_offset_id bigint not null default 0
);
create index if not exists group_fanouts_group on penstock.group_fanouts (group_pk, id);

-- Partitions to look at again, since their row was locked when the router came by.
create table if not exists penstock.group_rechecks (
  group_pk integer not null,
  offset_id bigint not null,
  primary key (group_pk, offset_id)
);

-- The key of a projection: the values in the order of the group's attributes, null for a gap. The text
-- of an array tells a gap from every value.
create or replace function penstock.feed_key(projection text[])
returns bigint language sql immutable parallel safe
as $$ select hashtextextended(projection::text, 0) $$;

-- The keys of all feeds that a partition reads: its values with every choice of gaps but all.
create or replace function penstock.feed_keys(partition_values text[])
returns bigint[] language sql immutable parallel safe
as $$
  select array(
    select penstock.feed_key(array(
      select case when (choice.kept >> (i - 1)) & 1 = 1 then partition_values[i] end
      from generate_series(1, cardinality(partition_values)) i order by i))
    from generate_series(1, (1 << cardinality(partition_values)) - 1) as choice(kept))
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

-- The first message of a partition after a position.
create or replace function penstock.next_in_feeds(group_pk integer, feeds bigint[], after bigint)
returns bigint language plpgsql stable
as $$
begin
  return (
    select min(n.global_position)
    from unnest(next_in_feeds.feeds) as f(feed)
    cross join lateral (
      select g.global_position from penstock.group_feeds g
      where g.group_pk = next_in_feeds.group_pk and g.feed = f.feed
        and g.global_position > next_in_feeds.after
        and exists (  -- not removed since
          select from message_store.messages m where m.global_position = g.global_position)
      order by g.global_position limit 1
    ) n);
end
$$;

-- The messages of a partition after a position that are of some types, as far as they are routed.
create or replace function penstock.pending_positions(
  own penstock.consumer_groups, pending penstock.partitions, type_ids integer[], most bigint)
returns setof bigint language sql stable
as $$
  select n.global_position
  from unnest(pending.feeds) as f(feed)
  cross join lateral (
    select g.global_position from penstock.group_feeds g
    where g.group_pk = own.id and g.feed = f.feed
      and g.global_position > pending.last_position and g.global_position <= own.routed_to
      and g.type_id = any (type_ids)
      and exists (select from message_store.messages m where m.global_position = g.global_position)
    order by g.global_position limit most
  ) n
  order by n.global_position limit most
$$;

create or replace function penstock.find_group(group_id text)
returns penstock.consumer_groups language plpgsql stable
as $$
declare
  found_group penstock.consumer_groups;
begin
  select g.* into found_group from penstock.consumer_groups g where g.group_id = find_group.group_id;
  if not found then
    raise exception using errcode = 'PS044',
      message = format('no consumer group %s was registered', group_id),
      detail = jsonb_build_object('group_id', group_id);
  end if;
  return found_group;
end
$$;

create or replace function penstock.register_consumer_group(group_id text)
returns void language sql volatile
as $$
  insert into penstock.consumer_groups (group_id) values (register_consumer_group.group_id)
  on conflict (group_id) do nothing
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

-- Forget all offsets: every partition starts again. Claims in flight become stale. How far each
-- partition had come is kept, so that it can be told what it has handled before.
create or replace function penstock.reset_consumer_group(group_id text)
returns void language plpgsql volatile
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
begin
  perform penstock.refuse_old_snapshot();
  perform pg_advisory_xact_lock(1885693286, own.id);
  update penstock.consumer_groups g
  set partition_by = null, handled_types = '{}',
    replayed_by = coalesce(g.partition_by, g.replayed_by), routed_to = 0, looked_at = -1,
    updated_at = clock_timestamp()
  where g.id = own.id;
  delete from penstock.group_rechecks r where r.group_pk = own.id;
  delete from penstock.group_fanouts f where f.group_pk = own.id;
  delete from penstock.feed_partitions f where f.group_pk = own.id;
  with gone as (
    delete from penstock.partitions p where p.group_pk = own.id
    returning p.feed, greatest(p.last_position, p.replaying_to) as handled_to
  )
  insert into penstock.group_replays as r (group_pk, feed, global_position)
  select own.id, g.feed, g.handled_to from gone g where g.handled_to > 0
  on conflict on constraint group_replays_pkey
    do update set global_position = greatest(r.global_position, excluded.global_position);
  delete from penstock.group_feeds f where f.group_pk = own.id;
  delete from penstock.group_types t where t.group_pk = own.id;
end
$$;

-- A message on its way into the feeds of a group.
do $$
begin
  if to_regtype('penstock.routed_message') is null then
    create type penstock.routed_message as (
      global_position bigint,
      type_id integer,
      projection text[],
      feed bigint,
      complete boolean,                    -- it carries all of the group's attributes
      handled boolean                      -- the group handles its type
    );
  end if;
end
$$;

-- Put a batch of messages into the feeds, make the partitions that they reveal, and tell the partitions
-- that they concern. Returns how far it came. Only the holder of the group's lock may call it.
create or replace function penstock.route_batch(
  own penstock.consumer_groups, type_ids integer[], after bigint, until bigint, most integer)
returns bigint language plpgsql volatile
as $$
declare
  handled constant integer[] := array(
    select g.type_id from penstock.group_types g where g.group_pk = own.id and g.handled);
  positions bigint[];
  routed penstock.routed_message[];
  made bigint[];
begin
  -- the first messages of these types after `after`
  positions := array(
    select i.global_position
    from penstock.message_types t
    cross join lateral (
      select a.global_position from penstock.message_attributes a
      where a.key_pair = penstock.key_pair('', t.type) and a.type_id = t.id
        and a.global_position > after and a.global_position <= until
      order by a.global_position limit most
    ) i
    where t.id = any (type_ids)
    order by i.global_position limit most);

  -- those that carry an attribute of the group's, with their projections
  routed := array(
    select row(m.global_position, t.id, p.projection, penstock.feed_key(p.projection),
      array_position(p.projection, null) is null, t.id = any (handled))::penstock.routed_message
    from message_store.messages m
    join penstock.message_types t on t.type = m.type
    cross join lateral (
      select penstock.projection(own.partition_by, t.attributes, m.data) as projection
    ) p
    where m.global_position = any (positions) and t.id = any (type_ids)
      and array_remove(p.projection, null) <> '{}'
    order by m.global_position);

  insert into penstock.group_feeds (group_pk, feed, global_position, type_id)
  select own.id, r.feed, r.global_position, r.type_id from unnest(routed) r where r.handled
  on conflict do nothing;

  -- the partitions that are new with this batch, in the order of their first messages
  with revealed as (
    select r.feed, r.projection, min(r.global_position) as first_position
    from unnest(routed) r
    where r.complete
      and not exists (
        select from penstock.partitions p where p.group_pk = own.id and p.feed = r.feed)
    group by r.feed, r.projection
  ), new as (
    insert into penstock.partitions
      (group_pk, partition_key, partition_values, feed, feeds, next_position, replaying_to)
    select own.id, penstock.partition_key(own.partition_by, v.projection), v.projection, v.feed,
      k.feeds, penstock.next_in_feeds(own.id, k.feeds, 0),  -- they read what came before them, too
      coalesce(b.global_position, 0)
    from revealed v
    cross join lateral (select penstock.feed_keys(v.projection) as feeds) k
    left join penstock.group_replays b on b.group_pk = own.id and b.feed = v.feed
    order by v.first_position
    on conflict do nothing
    returning offset_id, feed, feeds
  ), registered as (
    insert into penstock.feed_partitions (group_pk, feed, offset_id)
    select own.id, f.feed, n.offset_id
    from new n cross join lateral unnest(n.feeds) as f(feed)
    where f.feed <> n.feed
    on conflict do nothing
  )
  select coalesce(array_agg(n.offset_id), '{}') into made from new n;

  -- the partitions that a complete message concerns: all of them, since one that has something to
  -- do by our snapshot may have been acknowledged meanwhile, by somebody who did not see these rows
  perform penstock.tell_partitions(own.id, array(
    select p.offset_id
    from (select distinct r.feed from unnest(routed) r where r.complete and r.handled) as told
    join penstock.partitions p on p.group_pk = own.id and p.feed = told.feed
    where p.offset_id <> all (made)), positions[1]);

  -- feeds with gaps, which somebody reads, are fanned out in slices
  insert into penstock.group_fanouts (group_pk, feed, global_position)
  select own.id, r.feed, min(r.global_position)
  from unnest(routed) r
  where r.handled and not r.complete
    and exists (
      select from penstock.feed_partitions m where m.group_pk = own.id and m.feed = r.feed)
  group by r.feed
  order by 3;

  return case when cardinality(positions) = most then positions[most] else until end;
end
$$;

-- Look for the next message of these partitions, where their rows can be locked; note the others. What is
-- new to them is at `first` or later.
create or replace function penstock.tell_partitions(
  group_pk integer, offset_ids bigint[], first bigint)
returns void language plpgsql volatile
as $$
declare
  locked bigint[];
begin
  if offset_ids = '{}' then
    return;
  end if;
  locked := array(
    select p.offset_id from penstock.partitions p
    where p.offset_id = any (offset_ids)
    order by p.offset_id
    for update skip locked);
  update penstock.partitions p
  set next_position = penstock.next_in_feeds(tell_partitions.group_pk, p.feeds, p.last_position)
  where p.offset_id = any (locked) and (p.next_position is null or p.next_position > first);
  insert into penstock.group_rechecks (group_pk, offset_id)
  select tell_partitions.group_pk, o.offset_id
  from unnest(offset_ids) as o(offset_id)
  where o.offset_id <> all (locked)
    and exists (select from penstock.partitions p where p.offset_id = o.offset_id)
  on conflict do nothing;
end
$$;

-- Look for the next message of these partitions, in a statement of its own once their rows are locked.
create or replace function penstock.find_next(offset_ids bigint[])
returns void language plpgsql volatile
as $$
begin
  perform from penstock.partitions p where p.offset_id = any (offset_ids)
  order by p.offset_id for update;
  update penstock.partitions p
  set next_position = penstock.next_in_feeds(p.group_pk, p.feeds, p.last_position)
  where p.offset_id = any (offset_ids);
end
$$;

-- A type has been indexed by new attributes: groups that are partitioned by some of them have to look
-- again, and where they have routed the type by fewer, to route it again.
create or replace function penstock.route_again(type_id integer, attributes text[])
returns void language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  concerned integer[];
  unrouted bigint[];
begin
  perform pg_advisory_xact_lock(1885693286, g.id) from penstock.consumer_groups g
  where g.partition_by && attributes order by g.id;
  concerned := array(select g.id from penstock.consumer_groups g where g.partition_by && attributes);
  update penstock.consumer_groups g set looked_at = -1 where g.id = any (concerned);
  update penstock.group_types t set routed_to = 0
  where t.group_pk = any (concerned) and t.type_id = route_again.type_id;
  with gone as (
    delete from penstock.group_feeds f
    where f.group_pk = any (concerned) and f.type_id = route_again.type_id
    returning f.global_position
  )
  select array_agg(g.global_position) into unrouted from gone g;
  perform penstock.find_next(array(
    select p.offset_id from penstock.partitions p
    where p.group_pk = any (concerned) and p.next_position = any (unrouted)));
end
$$;

-- Tell the partitions that read feeds with gaps, at most so many. Returns whether more are left.
create or replace function penstock.fan_out(own penstock.consumer_groups, most integer)
returns boolean language plpgsql volatile
as $$
declare
  left_to_tell integer := most;
  fanout record;
  slice bigint[];
  told bigint[] := '{}';
  first bigint;
  finished bigint[] := '{}';
begin
  for fanout in
    select f.id, f.feed, f.global_position, f.after_offset_id from penstock.group_fanouts f
    where f.group_pk = own.id order by f.id limit most
  loop
    slice := array(
      select m.offset_id from penstock.feed_partitions m
      where m.group_pk = own.id and m.feed = fanout.feed and m.offset_id > fanout.after_offset_id
      order by m.offset_id limit left_to_tell);
    told := told || slice;
    first := least(first, fanout.global_position);
    if cardinality(slice) < left_to_tell then
      finished := finished || fanout.id;
    else
      update penstock.group_fanouts f set after_offset_id = slice[cardinality(slice)]
      where f.id = fanout.id;
    end if;
    left_to_tell := left_to_tell - cardinality(slice);
    exit when left_to_tell = 0;
  end loop;
  delete from penstock.group_fanouts f where f.id = any (finished);
  perform penstock.tell_partitions(own.id, array(select distinct o from unnest(told) o), first);
  return exists (select from penstock.group_fanouts f where f.group_pk = own.id);
end
$$;

-- Do a bounded piece of the group's routing, if nobody else is doing it. Returns whether more is left.
create or replace function penstock.route(own penstock.consumer_groups, most integer default 500)
returns boolean language plpgsql volatile
as $$
declare
  last_position bigint;
  until bigint;
  upto bigint;
  behind boolean;
  late record;
  rechecks bigint[];
begin
  if not pg_try_advisory_xact_lock(1885693286, own.id) then
    return false;
  end if;
  select g.* into own from penstock.consumer_groups g where g.id = own.id;  -- under the lock
  if own.partition_by is null then
    return false;  -- it was reset
  end if;

  with taken as (
    delete from penstock.group_rechecks r
    where (r.group_pk, r.offset_id) in (
      select c.group_pk, c.offset_id from penstock.group_rechecks c
      where c.group_pk = own.id limit most)
    returning r.offset_id
  )
  select coalesce(array_agg(t.offset_id), '{}') into rechecks from taken t;
  perform penstock.tell_partitions(own.id, rechecks, 0);

  -- types that reveal partitions, once they are indexed
  insert into penstock.group_types (group_pk, type_id, handled, routed_to)
  select own.id, t.id, false, nullif(0, own.routed_to)
  from penstock.message_types t
  where t.attributes @> own.partition_by and t.filled_to is null
    and not exists (
      select from penstock.group_types g where g.group_pk = own.id and g.type_id = t.id);

  -- types that are new to the group
  loop
    select t.type_id, t.routed_to into late from penstock.group_types t
    where t.group_pk = own.id and t.routed_to is not null
    order by t.handled desc, t.type_id limit 1;
    exit when not found;
    late.routed_to := penstock.route_batch(
      own, array[late.type_id], late.routed_to, own.routed_to, most);
    update penstock.group_types t set routed_to = nullif(late.routed_to, own.routed_to)
    where t.group_pk = own.id and t.type_id = late.type_id;
    if late.routed_to < own.routed_to then
      perform penstock.fan_out(own, most);
      update penstock.consumer_groups g set looked_at = -1 where g.id = own.id;
      return true;
    end if;
  end loop;

  last_position := penstock.last_position();
  until := penstock.watermark();
  upto := own.routed_to;
  if until > own.routed_to then
    upto := penstock.route_batch(own, array(
      select g.type_id from penstock.group_types g where g.group_pk = own.id order by 1),
      own.routed_to, until, most);
  end if;
  behind := penstock.fan_out(own, most) or upto < until;
  update penstock.consumer_groups g
  set routed_to = upto, updated_at = clock_timestamp(),
    looked_at = case
      when not behind and upto >= last_position
        and not exists (select from penstock.group_rechecks r where r.group_pk = own.id)
      then last_position else -1 end
  where g.id = own.id;
  return behind;
end
$$;

-- Remember the group's attributes and types, as this claim names them. That is rare, and waits for
-- whoever is routing: what they route must not leave out a type that is said to be routed.
create or replace function penstock.enrol_in_group(
  own penstock.consumer_groups, names text[], handled_types text[])
returns penstock.consumer_groups language plpgsql volatile
as $$
begin
  perform pg_advisory_xact_lock(1885693286, own.id);
  select g.* into own from penstock.consumer_groups g where g.id = own.id;  -- under the lock
  if own.partition_by <> names
      and not exists (select from penstock.group_feeds f where f.group_pk = own.id)
      and not exists (select from penstock.partitions p where p.group_pk = own.id) then
    perform penstock.reset_consumer_group(own.group_id);  -- no message had the others
    select g.* into own from penstock.consumer_groups g where g.id = own.id;
  elsif own.partition_by <> names then
    raise exception using errcode = 'PS046',
      message = format('group %s is partitioned by %s, not by %s: reset it to change that',
        own.group_id, own.partition_by, names),
      detail = jsonb_build_object('group_id', own.group_id,
        'partition_by', own.partition_by, 'given', names);
  end if;
  if own.replayed_by <> names then
    delete from penstock.group_replays r where r.group_pk = own.id;
  end if;
  update penstock.consumer_groups g
  set partition_by = names, replayed_by = null, looked_at = -1,
    handled_types = array(
      select distinct t from unnest(g.handled_types || enrol_in_group.handled_types) t order by t)
  where g.id = own.id returning g.* into own;

  insert into penstock.group_types as g (group_pk, type_id, handled, routed_to)
  select own.id, t.id, true, nullif(0, own.routed_to)
  from penstock.message_types t
  where t.type = any (enrol_in_group.handled_types)
  on conflict on constraint group_types_pkey
    do update set handled = true, routed_to = excluded.routed_to where not g.handled;
  return own;
end
$$;

-- The types of these names, all declared and indexed, or an error.
create or replace function penstock.indexed_types(types text[])
returns integer[] language plpgsql stable
as $$
declare
  known constant integer[] := array(
    select t.id from penstock.message_types t
    where t.type = any (types) and t.filled_to is null order by t.id);
begin
  if cardinality(known) < cardinality(types) then
    perform penstock.check_conditions((
      select jsonb_agg(jsonb_build_object('type', w.type, 'attributes', '{}'::jsonb))
      from unnest(types) as w(type)));
  end if;
  return known;
end
$$;

-- Claim the partition whose first unhandled message is the oldest. The rows are its messages, the first
-- with the claim itself; no row means that there is nothing to do. `low` and `seen` make the guard, see
-- 31_boundaries.sql.
create or replace function penstock.claim_next(
  group_id text,
  partition_by text[],
  handled_types text[],
  worker_id text,
  batch_size integer default 100,
  lease interval default '30 seconds'
)
returns table (
  claim jsonb,
  id varchar, stream_name varchar, type varchar, "position" bigint, global_position bigint,
  data varchar, metadata varchar, "time" timestamp
)
language plpgsql volatile
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  may_have_work boolean;
  own penstock.consumer_groups;
  names text[] := claim_next.partition_by;
  type_ids integer[];
  more boolean;
  chosen penstock.partitions;
  new_token uuid;
  positions bigint[];
  replaying boolean;
  low bigint;
  boundary jsonb;
  done text;
begin
  -- this is all that a worker without work costs: nothing to route, nothing to hand out
  select g.looked_at <> coalesce(
      pg_sequence_last_value('message_store.messages_global_position_seq'::regclass),
      penstock.last_position())
    or exists (
      select from penstock.partitions p
      where p.group_pk = g.id and p.next_position is not null and p.token is null
        and p.parked_at is null)
    or exists (
      select from penstock.partitions p
      where p.group_pk = g.id and p.token is not null and p.lease_until < clock_timestamp())
  into may_have_work
  from penstock.consumer_groups g
  where g.group_id = claim_next.group_id and g.status = 'active' and g.partition_by = names
    and g.handled_types @> claim_next.handled_types
    and current_setting('transaction_isolation') like 'read %';
  if not may_have_work then  -- null: the claim asks for something else
    return;
  end if;

  own := penstock.find_group(claim_next.group_id);
  if own.status <> 'active' then
    return;
  end if;
  done := penstock.refuse_old_snapshot();
  type_ids := penstock.indexed_types(claim_next.handled_types);
  if may_have_work is null then
    names := array(select distinct n collate "C" from unnest(names) n order by 1);
    if own.partition_by @> names and names @> own.partition_by then
      names := own.partition_by;  -- in the order in which the group has them
    end if;
    if own.partition_by is distinct from names
        or not own.handled_types @> claim_next.handled_types then
      own := penstock.enrol_in_group(own, names, claim_next.handled_types);
    end if;
  end if;

  for round in 1 .. 10 loop  -- where what was routed is not for this worker, route more
    more := false;
    if own.looked_at <> penstock.last_position() then
      more := penstock.route(own);
      select g.* into own from penstock.consumer_groups g where g.id = own.id;
    end if;
    -- while a new type is being routed, what comes first is not known yet
    if not exists (
      select from penstock.group_types g
      where g.group_pk = own.id and g.handled and g.routed_to is not null
    ) then
      chosen := penstock.ready_partition(own, type_ids);
    end if;
    exit when chosen.offset_id is not null or not more;
  end loop;
  if chosen.offset_id is null then
    return;
  end if;

  -- what was handled before a reset comes apart from what was not
  positions := array(select penstock.pending_positions(own, chosen, type_ids, batch_size));
  replaying := positions[1] <= chosen.replaying_to;
  if replaying then
    positions := array(select p from unnest(positions) p where p <= chosen.replaying_to order by p);
  end if;
  new_token := gen_random_uuid();
  update penstock.partitions p
  set token = new_token, claimed_by = worker_id, claimed_at = clock_timestamp(),
    lease_until = clock_timestamp() + lease, attempts = p.attempts + 1
  where p.offset_id = chosen.offset_id;

  boundary := penstock.partition_conditions(
    names, chosen.partition_values, claim_next.handled_types);
  low := penstock.claimed_low(own);
  claim := jsonb_build_object(
    'offset_id', chosen.offset_id,
    'key_pair_ids', array(
      select penstock.key_pair(a.name, a.value)
      from unnest(names, chosen.partition_values) with ordinality as a(name, value, number)
      order by a.number),
    'partition_key', chosen.partition_key,
    'partition_by', names,
    'partition_values', chosen.partition_values,
    'token', new_token,
    'replaying', replaying,
    'attempts', chosen.attempts + 1,
    'conditions', boundary,
    'low', low,
    'seen', array(select s.position from penstock.matching_positions(boundary, low) s(position)));
  return query
    select case row_number() over (order by m.global_position) when 1 then claim end,
      m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
      m.data::varchar, m.metadata::varchar, m.time
    from message_store.messages m
    where m.global_position = any (positions)
    order by m.global_position;
end
$$;

-- A claim's `low`, see 31_boundaries.sql. Where the group has routed all there is, that is as far as it
-- has come, which was a watermark, and the announcements need not be read again.
create or replace function penstock.claimed_low(own penstock.consumer_groups)
returns bigint language plpgsql volatile
as $$
begin
  if own.looked_at <> penstock.last_position() then
    return penstock.complete_to();
  end if;
  return coalesce((
    select m.global_position from message_store.messages m
    where m.global_position <= own.routed_to order by m.global_position desc limit 1), 0);
end
$$;

-- Lock the partition to claim next: one whose lease has lapsed, else the one with the oldest message.
-- It has messages of these types.
create or replace function penstock.ready_partition(
  own penstock.consumer_groups, type_ids integer[])
returns penstock.partitions language plpgsql volatile
set enable_sort = off set enable_bitmapscan = off
as $$
declare
  chosen penstock.partitions;
begin
  select p.* into chosen from penstock.partitions p
  where p.group_pk = own.id and p.token is not null and p.lease_until < clock_timestamp()
    and exists (select from penstock.pending_positions(own, p, type_ids, 1))
  order by p.lease_until limit 1
  for update skip locked;
  if not found then
    select p.* into chosen from penstock.partitions p
    where p.group_pk = own.id and p.next_position is not null and p.token is null
      and p.parked_at is null and (p.retry_at is null or p.retry_at <= clock_timestamp())
      and exists (select from penstock.pending_positions(own, p, type_ids, 1))
    order by p.next_position, p.offset_id limit 1
    for update skip locked;
  end if;
  if not found then  -- claims that nobody will acknowledge, since their messages are removed
    update penstock.partitions p
    set token = null, claimed_by = null, claimed_at = null, lease_until = null
    where p.group_pk = own.id and p.token is not null and p.lease_until < clock_timestamp()
      and p.next_position is null;
  end if;
  return chosen;
end
$$;

-- The boundary of a partition: for each type, the attributes that it declares of the partition's.
create or replace function penstock.partition_conditions(
  names text[], partition_values text[], handled_types text[])
returns jsonb language sql stable
as $$
  select coalesce(jsonb_agg(
    jsonb_build_object('type', c.type, 'attributes', c.attributes) order by c.ordinality), '[]')
  from (
    select t.type, h.ordinality, jsonb_object_agg(p.name, jsonb_build_array(p.value)) as attributes
    from unnest(handled_types) with ordinality as h(type, ordinality)
    join penstock.message_types t on t.type = h.type
    cross join lateral unnest(names, partition_values) as p(name, value)
    where p.name = any (t.attributes)
    group by t.type, h.ordinality
  ) c
$$;

-- Lock a claimed partition for its holder, or say that the claim is no longer theirs. What comes next in
-- it is looked for under the lock, which an old snapshot would not show.
create or replace function penstock.held_partition(group_id text, offset_id bigint, token uuid)
returns penstock.partitions language plpgsql volatile
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
  held penstock.partitions;
begin
  perform penstock.refuse_old_snapshot();
  select p.* into held from penstock.partitions p
  where p.offset_id = held_partition.offset_id and p.group_pk = own.id
    and p.token = held_partition.token
  for update;
  if not found then
    raise exception using errcode = 'PS045',
      message = format('the claim on partition %s of group %s is not yours any more',
        offset_id, group_id),
      detail = jsonb_build_object('group_id', group_id, 'offset_id', offset_id);
  end if;
  return held;
end
$$;

-- Note that a partition's messages up to a position are handled, and give it back.
create or replace function penstock.ack(
  group_id text, offset_id bigint, "position" bigint, token uuid)
returns void language plpgsql volatile
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
  held constant penstock.partitions := penstock.held_partition(group_id, offset_id, token);
  routed_to bigint;
begin
  select g.routed_to into routed_to from penstock.consumer_groups g where g.id = held.group_pk;
  if ack.position <= held.last_position or ack.position > routed_to then
    raise exception using errcode = 'PS047',
      message = format('position %s is not after %s and up to %s',
        ack.position, held.last_position, routed_to),
      detail = jsonb_build_object('group_id', group_id, 'position', ack.position,
        'last_position', held.last_position);
  end if;
  update penstock.partitions p
  set last_position = ack.position, token = null, claimed_by = null, claimed_at = null,
    lease_until = null, attempts = 0, retry_at = null, error = null,
    next_position = penstock.next_in_feeds(held.group_pk, held.feeds, ack.position)
  where p.offset_id = held.offset_id;
end
$$;

-- Give a partition back as it was: at once, after a delay, or parked until somebody resumes it. An
-- attempt without an error does not count.
create or replace function penstock.release(
  group_id text, offset_id bigint, token uuid,
  delay interval default '0', error text default null, park boolean default false)
returns void language plpgsql volatile
as $$
declare
  held constant penstock.partitions := penstock.held_partition(group_id, offset_id, token);
begin
  update penstock.partitions p
  set token = null, claimed_by = null, claimed_at = null, lease_until = null,
    retry_at = case when delay > '0' then clock_timestamp() + delay end,
    error = release.error, parked_at = case when park then clock_timestamp() end,
    attempts = case when release.error is null then greatest(p.attempts - 1, 0) else p.attempts end,
    next_position = penstock.next_in_feeds(held.group_pk, held.feeds, held.last_position)
  where p.offset_id = held.offset_id;
end
$$;

-- Keep a claim for another lease.
create or replace function penstock.extend(
  group_id text, offset_id bigint, token uuid, lease interval)
returns void language plpgsql volatile
as $$
declare
  held constant penstock.partitions := penstock.held_partition(group_id, offset_id, token);
begin
  update penstock.partitions p set lease_until = clock_timestamp() + lease
  where p.offset_id = held.offset_id;
end
$$;

-- Let parked partitions of a group go on: one, or all. Returns how many.
create or replace function penstock.resume_partitions(group_id text, partition_key text default null)
returns bigint language plpgsql volatile
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
  resumed bigint[];
begin
  perform penstock.refuse_old_snapshot();
  resumed := array(
    select p.offset_id from penstock.partitions p
    where p.group_pk = own.id and p.parked_at is not null
      and (resume_partitions.partition_key is null
        or p.partition_key = resume_partitions.partition_key)
    order by p.offset_id
    for update);
  update penstock.partitions p
  set parked_at = null, retry_at = null, attempts = 0,
    next_position = penstock.next_in_feeds(own.id, p.feeds, p.last_position)
  where p.offset_id = any (resumed);
  return cardinality(resumed);
end
$$;

create or replace function penstock.clear_consumer_groups()
returns void language sql volatile
as $$
  delete from penstock.group_rechecks;
  delete from penstock.group_fanouts;
  delete from penstock.feed_partitions;
  delete from penstock.partitions;
  delete from penstock.group_feeds;
  delete from penstock.group_replays;
  delete from penstock.group_types;
  delete from penstock.consumer_groups
$$;
