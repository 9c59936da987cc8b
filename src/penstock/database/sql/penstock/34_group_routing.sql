-- Routing: each message is put once into the feeds of a group, and `next_position` of the partitions that it
-- belongs to is updated.
--
-- A partition's `next_position` changes only under the partition's lock: an ack locks the partition, and
-- then finds the next message in a separate statement. Routing never waits: partitions that it cannot lock
-- are put into `group_rechecks`, for the next routing. A message that belongs to very many partitions is
-- fanned out in slices.

-- Route a bounded batch, unless another transaction is routing for this group. Returns whether more is left.
create or replace function penstock.route(own penstock.consumer_groups, most integer default 500)
returns boolean language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  saved penstock.group_progress;
  progress penstock.group_progress;
  last_position bigint;
  until bigint;
  more boolean;
  backfill record;
  rechecks bigint[];
  offset_ids bigint[];
begin
  if not pg_try_advisory_xact_lock(1885693286, own.id) then
    return false;
  end if;
  select g.* into own from penstock.consumer_groups g where g.id = own.id;  -- under the lock
  if own.partition_by is null then
    return false;  -- it was reset, or removed
  end if;
  select p.* into saved from penstock.latest_group_progress(own.id) p;
  progress := saved;

  select coalesce(array_agg(r.id order by r.id), '{}'), coalesce(array_agg(distinct r.offset_id), '{}')
  into rechecks, offset_ids
  from (
    select r.id, r.offset_id from penstock.group_rechecks r
    where r.group_pk = own.id and r.id > progress.rechecked order by r.id limit most
  ) r;
  if rechecks <> '{}' then
    progress.rechecked := rechecks[cardinality(rechecks)];
    delete from penstock.group_rechecks r where r.group_pk = own.id and r.id = any (rechecks);
    perform penstock.refresh_partitions(own, offset_ids, 0);
  end if;

  -- types that create partitions, once they are indexed
  with new as (
    insert into penstock.group_types (group_pk, type_id, handled)
    select own.id, t.id, false
    from penstock.message_types t
    where t.attributes @> own.partition_by and t.filled_to is null
      and not exists (
        select from penstock.group_types g where g.group_pk = own.id and g.type_id = t.id)
    returning type_id
  )
  select progress.backfills || coalesce(jsonb_object_agg(n.type_id, 0), '{}') into progress.backfills
  from new n;

  -- types that are new to the group are routed up to where the others are
  while progress.backfills <> '{}' loop
    select t.type_id, (progress.backfills ->> t.type_id::text)::bigint as routed_to into backfill
    from jsonb_object_keys(progress.backfills) as l(type_id)
    join penstock.group_types t on t.group_pk = own.id and t.type_id = l.type_id::integer
    order by t.handled desc, t.type_id limit 1;
    exit when not found;
    if backfill.routed_to < progress.routed_to then
      backfill.routed_to := penstock.route_batch(
        own, array[backfill.type_id], backfill.routed_to, progress.routed_to, most);
    end if;
    if backfill.routed_to < progress.routed_to then
      progress.backfills := progress.backfills || jsonb_build_object(backfill.type_id, backfill.routed_to);
      progress.caught_up_at := -1;
      progress := penstock.fan_out(own, progress, most);
      perform penstock.replace_group_progress(saved, progress);
      return true;
    end if;
    progress.backfills := progress.backfills - backfill.type_id::text;
  end loop;

  last_position := penstock.last_position();
  until := penstock.watermark_after(progress.routed_to);
  if until > progress.routed_to then
    progress.routed_to := penstock.route_batch(own, array(
      select g.type_id from penstock.group_types g where g.group_pk = own.id order by 1),
      progress.routed_to, until, most);
  end if;
  progress := penstock.fan_out(own, progress, most);
  more := progress.routed_to < until or exists (
    select from penstock.group_fanouts f where f.group_pk = own.id and f.id > progress.fanned_out);
  progress.caught_up_at := case
    when not more and progress.routed_to >= last_position
      and not exists (
        select from penstock.group_rechecks r
        where r.group_pk = own.id and r.id > progress.rechecked)
    then last_position else -1 end;
  if progress <> saved then
    perform penstock.replace_group_progress(saved, progress);
  end if;
  return more;
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

-- Put a batch of messages into the feeds, create the partitions that are new with it, and update the
-- partitions that the messages belong to. Returns the position reached. The caller holds the group's lock.
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

  -- those that carry an attribute of the group, with their projections
  routed := array(
    select row(m.global_position, t.id, p.projection, penstock.feed_key(p.projection),
      array_position(p.projection, null) is null, t.id = any (handled))::penstock.routed_message
    from penstock.indexed_messages m
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

  with revealed as (
    -- the partitions that are new with this batch
    select r.feed, r.projection, min(r.global_position) as first_position
    from unnest(routed) r
    where r.complete
      and not exists (
        select from penstock.partitions p
        where p.group_pk = own.id and p.feed = r.feed and p.partition_values = r.projection)
    group by r.feed, r.projection
  ), new as (
    -- their rows, in the order of their first messages
    insert into penstock.partitions
      (group_pk, partition_key, partition_values, feed, feeds, replaying_to)
    select own.id, penstock.partition_key(own.partition_by, v.projection), v.projection, v.feed,
      penstock.feed_keys(v.projection), coalesce((
        select max(b.global_position) from penstock.group_replays b
        where b.group_pk = own.id and b.feed = v.feed
          and coalesce(b.partition_values, v.projection) = v.projection), 0)
    from revealed v
    order by v.first_position
    returning offset_id, partition_values, feeds
  ), registered as (
    insert into penstock.feed_partitions (group_pk, feed, offset_id)
    select own.id, f.feed, n.offset_id
    from new n cross join lateral unnest(penstock.feed_keys(n.partition_values, false)) as f(feed)
  ), placed as (
    -- their states: they read earlier messages, too
    insert into penstock.partition_states (offset_id, group_pk, next_position, queue_position)
    select n.offset_id, own.id, f.next_position, f.next_position
    from new n
    cross join lateral (
      select penstock.next_in_feeds(own.id, own.partition_by, n.partition_values, n.feeds, 0)
        as next_position
    ) f
    order by n.offset_id
    returning offset_id
  )
  select coalesce(array_agg(p.offset_id), '{}') into made from placed p;

  -- the partitions that a complete message belongs to, whatever their state: one that has messages in this
  -- snapshot may have been acknowledged since, by a transaction that did not see these rows
  perform penstock.refresh_partitions(own, array(
    select p.offset_id
    from (select distinct r.feed from unnest(routed) r where r.complete and r.handled) as touched
    join penstock.partitions p on p.group_pk = own.id and p.feed = touched.feed
    where p.offset_id <> all (made)), positions[1]);

  -- feeds with gaps that partitions read are fanned out in slices
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

-- Update the partitions that read feeds with gaps, at most so many. Returns the group's progress.
create or replace function penstock.fan_out(
  own penstock.consumer_groups, progress penstock.group_progress, most integer)
returns penstock.group_progress language plpgsql volatile
as $$
declare
  remaining integer := most;
  fanout record;
  slice bigint[];
  touched bigint[] := '{}';
  first bigint;
  finished bigint[] := '{}';
begin
  for fanout in
    select f.id, f.feed, f.global_position from penstock.group_fanouts f
    where f.group_pk = own.id and f.id > progress.fanned_out order by f.id limit most
  loop
    slice := array(
      select m.offset_id from penstock.feed_partitions m
      where m.group_pk = own.id and m.feed = fanout.feed and m.offset_id > progress.fanned_to
      order by m.offset_id limit remaining);
    touched := touched || slice;
    first := least(first, fanout.global_position);
    if cardinality(slice) < remaining then
      finished := finished || fanout.id;
      progress.fanned_out := fanout.id;
      progress.fanned_to := 0;
    else
      progress.fanned_to := slice[cardinality(slice)];
    end if;
    remaining := remaining - cardinality(slice);
    exit when remaining = 0;
  end loop;
  delete from penstock.group_fanouts f where f.group_pk = own.id and f.id = any (finished);
  perform penstock.refresh_partitions(own, array(select distinct o from unnest(touched) o), first);
  return progress;
end
$$;

-- Find the next message of these partitions where they can be locked, and put the others into
-- `group_rechecks`.
create or replace function penstock.refresh_partitions(
  own penstock.consumer_groups, offset_ids bigint[], first bigint)
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
  perform penstock.update_next_positions(own, locked, first);
  insert into penstock.group_rechecks (group_pk, offset_id)
  select own.id, o.offset_id
  from unnest(offset_ids) as o(offset_id)
  where o.offset_id <> all (locked)
    and exists (select from penstock.partitions p where p.offset_id = o.offset_id);
end
$$;

-- Find the next message of these partitions, whose locks the caller holds. New messages are at `first` or
-- later. In a group with claims of fewer types (`narrowed`), each partition that is ready gets a new state,
-- so that a claim that skipped it finds it again.
create or replace function penstock.update_next_positions(
  own penstock.consumer_groups, offset_ids bigint[], first bigint)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
begin
  with found as (
    -- the states of the partitions, with their first message as it is now
    select s.*, case
        when s.next_position is null or s.next_position > first
        then penstock.next_in_feeds(
          own.id, own.partition_by, p.partition_values, p.feeds, s.last_position)
        else s.next_position end as first_position
    from unnest(offset_ids) as o(offset_id)
    join penstock.partitions p on p.offset_id = o.offset_id
    cross join lateral penstock.latest_partition_state(p.offset_id) s
  ), changed as (
    select f.* from found f
    where f.first_position is distinct from f.next_position
      or own.narrowed and f.queue_position is not null
  ), gone as (
    delete from penstock.partition_states s using changed c
    where s.offset_id = c.offset_id and s.version = c.version
  )
  insert into penstock.partition_states
    (offset_id, group_pk, last_position, next_position, queue_position, due, token, claimed_by, claimed_at,
     claimed_types, claim_order, attempts, error, parked_at, finished_token, finished_call)
  select c.offset_id, c.group_pk, c.last_position, c.first_position,
    case
      when c.due is not null or c.parked_at is not null or c.first_position is null then null
      when c.claim_order = 'round_robin' and c.queue_position is not null then c.queue_position
      else c.first_position end,
    c.due, c.token, c.claimed_by, c.claimed_at, c.claimed_types, c.claim_order, c.attempts, c.error,
    c.parked_at, c.finished_token, c.finished_call
  from changed c;
end
$$;

-- The first message of a partition after a position.
create or replace function penstock.next_in_feeds(
  group_pk integer, names text[], partition_values text[], feeds bigint[], after bigint)
returns bigint language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
begin
  return (
    select min(n.global_position)
    from unnest(next_in_feeds.feeds) as f(feed)
    cross join lateral (
      select g.global_position from penstock.group_feeds g
      where g.group_pk = next_in_feeds.group_pk and g.feed = f.feed
        and g.global_position > next_in_feeds.after
        and exists (
          select from penstock.message_in_partition(
            g.global_position, g.type_id, next_in_feeds.names, next_in_feeds.partition_values))
      order by g.global_position limit 1
    ) n);
end
$$;

-- The message at this position, if it belongs to a partition: for each attribute of the group that it
-- carries, it has the partition's value. A feed's key is a hash, so two partitions may share a feed.
create or replace function penstock.message_in_partition(
  global_position bigint, type_id integer, names text[], partition_values text[])
returns setof bigint language sql stable rows 1
as $$
  select m.global_position
  from penstock.indexed_messages m
  join penstock.message_types t on t.id = message_in_partition.type_id
  where m.global_position = message_in_partition.global_position
    and not exists (
      select from unnest(names, message_in_partition.partition_values) as a(name, value)
      where a.name = any (t.attributes) and m.data ->> a.name <> a.value)
  offset 0
$$;

-- Messages were removed from the log or from the feeds: find the next message of the partitions that would
-- have read them next.
create or replace function penstock.skip_messages(positions bigint[])
returns void language plpgsql volatile
as $$
declare
  own penstock.consumer_groups;
  concerned bigint[];
begin
  for own in select g.* from penstock.consumer_groups g where g.partition_by is not null loop
    concerned := array(
      select s.offset_id from unnest(positions) as m(global_position)
      join penstock.partition_states s
        on s.group_pk = own.id and s.next_position = m.global_position
      where s.next_position is not null and s.parked_at is null
      union all
      select s.offset_id from unnest(positions) as m(global_position)
      join penstock.partition_states s
        on s.group_pk = own.id and s.next_position = m.global_position
      where s.parked_at is not null);
    if concerned <> '{}' then
      perform from penstock.partitions p where p.offset_id = any (concerned)
      order by p.offset_id for update;
      perform penstock.update_next_positions(own, concerned, 0);
    end if;
  end loop;
end
$$;

-- A type has been indexed by new attributes: groups that are partitioned by some of them route it again from
-- the start, if they have routed it before.
create or replace function penstock.reroute_type(type_id integer, attributes text[])
returns void language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  own penstock.consumer_groups;
  progress penstock.group_progress;
  saved penstock.group_progress;
  unrouted bigint[];
begin
  perform pg_advisory_xact_lock(1885693286, g.id) from penstock.consumer_groups g
  where g.partition_by && attributes order by g.id;
  for own in
    select g.* from penstock.consumer_groups g where g.partition_by && attributes order by g.id
  loop
    select p.* into saved from penstock.latest_group_progress(own.id) p;
    progress := saved;
    progress.caught_up_at := -1;
    if exists (
      select from penstock.group_types t
      where t.group_pk = own.id and t.type_id = reroute_type.type_id
    ) then
      progress.backfills := progress.backfills || jsonb_build_object(type_id, 0);
    end if;
    perform penstock.replace_group_progress(saved, progress);
    with gone as (
      delete from penstock.group_feeds f
      where f.group_pk = own.id and f.type_id = reroute_type.type_id
      returning f.global_position
    )
    select coalesce(unrouted, '{}') || coalesce(array_agg(g.global_position), '{}') into unrouted
    from gone g;
  end loop;
  perform penstock.skip_messages(unrouted);
end
$$;

-- Store the attributes and add the types that this claim names. That is rare, and waits for a transaction
-- that is routing: it would leave out the new types.
create or replace function penstock.configure_group(
  own penstock.consumer_groups, names text[], handled_types text[])
returns penstock.consumer_groups language plpgsql volatile
as $$
declare
  group_id constant text := own.group_id;
  saved penstock.group_progress;
  progress penstock.group_progress;
  new_types jsonb;
begin
  perform pg_advisory_xact_lock(1885693286, own.id);
  select g.* into own from penstock.consumer_groups g where g.id = own.id;  -- under the lock
  if not found then
    perform penstock.refuse_unknown_group(group_id);  -- it was removed meanwhile
  end if;
  if own.partition_by <> names
      and not exists (select from penstock.group_feeds f where f.group_pk = own.id)
      and not exists (select from penstock.partitions p where p.group_pk = own.id) then
    perform penstock.reset_consumer_group(own.group_id);  -- nothing was routed by the other attributes
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
  set partition_by = names, replayed_by = null,
    narrowed = g.narrowed or not configure_group.handled_types @> g.handled_types,
    handled_types = array(
      select distinct t collate "C" from unnest(g.handled_types || configure_group.handled_types) t
      order by 1)
  where g.id = own.id returning g.* into own;

  with new as (
    insert into penstock.group_types as g (group_pk, type_id, handled)
    select own.id, t.id, true
    from penstock.message_types t
    where t.type = any (configure_group.handled_types)
    on conflict on constraint group_types_pkey do update set handled = true where not g.handled
    returning type_id
  )
  select coalesce(jsonb_object_agg(n.type_id, 0), '{}') into new_types from new n;
  select p.* into saved from penstock.latest_group_progress(own.id) p;
  progress := saved;
  if progress.routed_to > 0 then
    progress.backfills := progress.backfills || new_types;
  end if;
  progress.caught_up_at := -1;
  perform penstock.replace_group_progress(saved, progress);
  return own;
end
$$;

-- Store that a claim has named fewer types than the group handles, unless another transaction is routing:
-- then a later claim does, and until then such claims have no cursor.
create or replace function penstock.mark_narrowed(own penstock.consumer_groups)
returns penstock.consumer_groups language plpgsql volatile
as $$
begin
  if pg_try_advisory_xact_lock(1885693286, own.id) then
    update penstock.consumer_groups g set narrowed = true
    where g.id = own.id and g.partition_by is not null;
    select g.* into own from penstock.consumer_groups g where g.id = own.id;
  end if;
  return own;
end
$$;
