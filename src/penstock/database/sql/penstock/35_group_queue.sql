-- The queue of a group: which of its partitions can be claimed, and which is the next.
--
-- Partitions that can be claimed are in the index `partition_states_ready`, by `queue_position`; claimed ones
-- and those that wait for a retry are in `partition_states_due`, by the time at which they can be claimed.
-- Parked partitions are in neither. While an old snapshot is open, the dead entries of former states stay
-- in these indexes, most of them at the head, where a scan begins.
--
-- So a scan begins at a claim cursor. The promise of a cursor: of all states that were visible when it was
-- made, each that is in the queue is at the cursor or after it, or its partition is one of
-- `partitions_before`. A state that was not visible was written by a transaction that was open then
-- (`open_xids`), or began later (`next_xid`), or made the cursor and wrote it afterwards: those states are
-- found by their `xid`. So no state is ever missed, in whatever order transactions commit, and no lock is
-- needed: a cursor states a fact about a snapshot. A claim makes a new cursor when the last one is some
-- transactions old, so that few states are uncovered.
--
-- A partition may return to a position before the cursor: in the order 'oldest', after an ack its next message
-- may be older than those of all other partitions that are ready. Such a partition is in
-- `partitions_before`. If there are many, the cursor moves back instead.
--
-- A claim that names fewer types than the group handles skips partitions that have no messages of these, and
-- has a cursor of its own, which covers only partitions that have. For that reason such a group writes a
-- new state when a message is routed to a partition that is ready already (34_group_routing.sql).

-- Lock the first partition in the queue; with `type_ids`, the first that has messages of these. It may have
-- been claimed just before it was locked.
create or replace function penstock.lock_next_partition(
  own penstock.consumer_groups, claim_cursor penstock.claim_cursors, type_ids integer[], routed_to bigint)
returns penstock.partitions language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
declare
  first penstock.partitions;
begin
  if type_ids is null then
    select p.* into first
    from penstock.uncovered_states(claim_cursor) s join penstock.partitions p on p.offset_id = s.offset_id
    where (s.queue_position, s.version) < (claim_cursor.queue_position, claim_cursor.version)
    order by s.queue_position, s.version limit 1
    for update of p skip locked;
    if not found then
      select p.* into first
      from penstock.partition_states s join penstock.partitions p on p.offset_id = s.offset_id
      where s.group_pk = own.id and s.queue_position is not null
        and (s.queue_position, s.version) >= (claim_cursor.queue_position, claim_cursor.version)
      order by s.queue_position, s.version limit 1
      for update of p skip locked;
    end if;
  else
    select p.* into first
    from penstock.uncovered_states(claim_cursor) s join penstock.partitions p on p.offset_id = s.offset_id
    where (s.queue_position, s.version) < (claim_cursor.queue_position, claim_cursor.version)
      and exists (
        select from penstock.pending_positions_of(type_ids, own, p, s.last_position, routed_to, 1))
    order by s.queue_position, s.version limit 1
    for update of p skip locked;
    if not found then
      select p.* into first
      from penstock.partition_states s join penstock.partitions p on p.offset_id = s.offset_id
      where s.group_pk = own.id and s.queue_position is not null
        and (s.queue_position, s.version) >= (claim_cursor.queue_position, claim_cursor.version)
        and exists (
          select from penstock.pending_positions_of(type_ids, own, p, s.last_position, routed_to, 1))
      order by s.queue_position, s.version limit 1
      for update of p skip locked;
    end if;
  end if;
  return first;
end
$$;

-- The unhandled messages of a partition, up to where they are routed, at most `most`.
create or replace function penstock.pending_positions(
  own penstock.consumer_groups, pending penstock.partitions, after bigint, routed_to bigint,
  most bigint)
returns setof bigint language sql stable
as $$
  select n.global_position
  from unnest(pending.feeds) as f(feed)
  cross join lateral (
    select g.global_position from penstock.group_feeds g
    where g.group_pk = own.id and g.feed = f.feed
      and g.global_position > after and g.global_position <= routed_to
      and exists (
        select from penstock.message_in_partition(
          g.global_position, g.type_id, own.partition_by, pending.partition_values))
    order by g.global_position limit most
  ) n
  order by n.global_position limit most
$$;

-- The same, of some types only.
create or replace function penstock.pending_positions_of(
  type_ids integer[], own penstock.consumer_groups, pending penstock.partitions, after bigint,
  routed_to bigint, most bigint)
returns setof bigint language sql stable
as $$
  select n.global_position
  from unnest(pending.feeds) as f(feed)
  cross join unnest(type_ids) as t(type_id)
  cross join lateral (
    select g.global_position from penstock.group_feeds g
    where g.group_pk = own.id and g.feed = f.feed and g.type_id = t.type_id
      and g.global_position > after and g.global_position <= routed_to
      and exists (
        select from penstock.message_in_partition(
          g.global_position, g.type_id, own.partition_by, pending.partition_values))
    order by g.global_position limit most
  ) n
  order by n.global_position limit most
$$;

-- Make partitions ready whose lease or delay has ended.
create or replace function penstock.expire_leases(
  own penstock.consumer_groups, claim_cursor penstock.claim_cursors, routed_to bigint)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
declare
  moment constant timestamptz := clock_timestamp();
  ended bigint[];
begin
  ended := array(
    select d.offset_id from penstock.uncovered_states(claim_cursor) d where d.due <= moment
    union
    (select s.offset_id from penstock.partition_states s
     where s.group_pk = own.id and s.due is not null and s.due >= claim_cursor.due and s.due <= moment
     order by s.due, s.version limit 100));
  if ended <> '{}' then
    ended := array(
      select p.offset_id from penstock.partitions p
      where p.offset_id = any (ended) order by p.offset_id for update skip locked);
    perform penstock.make_ready(own, ended, routed_to);
  end if;
end
$$;

-- Make partitions ready whose lease or delay has ended, or which were parked. The caller holds their locks.
-- The worker that held the lease can still acknowledge, until another one claims the partition.
create or replace function penstock.make_ready(
  own penstock.consumer_groups, offset_ids bigint[], routed_to bigint)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
begin
  with found as (
    -- the states of the partitions, with their first message as it is now
    select s.*, penstock.next_in_feeds(
        own.id, own.partition_by, p.partition_values, p.feeds, s.last_position) as first_position
    from unnest(offset_ids) as o(offset_id)
    join penstock.partitions p on p.offset_id = o.offset_id
    cross join lateral penstock.latest_partition_state(p.offset_id) s
    where s.due <= clock_timestamp() or s.parked_at is not null
  ), gone as (
    delete from penstock.partition_states s using found f
    where s.offset_id = f.offset_id and s.version = f.version
  )
  insert into penstock.partition_states
    (offset_id, group_pk, last_position, next_position, queue_position, token, claimed_by, claimed_at,
     claimed_types, claim_order, attempts, error, finished_token, finished_call)
  select f.offset_id, f.group_pk, f.last_position, f.first_position,
    penstock.queue_position(f.claim_order, f.first_position, routed_to),
    case when f.first_position is not null then f.token end, f.claimed_by, f.claimed_at,
    f.claimed_types, f.claim_order, case when f.parked_at is null then f.attempts else 0 end, f.error,
    f.finished_token, f.finished_call
  from found f;
end
$$;

-- The cursor for claims that name these types; none means all of the group's. The start of the queue, if
-- there is none yet, or after a restore into another cluster, whose transaction ids differ.
create or replace function penstock.latest_claim_cursor(group_pk integer, types text[])
returns setof penstock.claim_cursors language sql stable rows 1
as $$
  select f.* from (
    (select f.* from penstock.claim_cursors f
     where f.group_pk = latest_claim_cursor.group_pk
       and f.types_key = hashtextextended(latest_claim_cursor.types::text, 0)
       and f.types = latest_claim_cursor.types
       and f.next_xid <= pg_snapshot_xmax(pg_current_snapshot())
     order by f.id desc limit 1)
    union all
    select latest_claim_cursor.group_pk, hashtextextended(latest_claim_cursor.types::text, 0), 0,
      latest_claim_cursor.types, 0, 0, '-infinity', 0, 0, '{}', '18446744073709551615', '{}',
      '18446744073709551615', 0
  ) f
  order by f.id desc limit 1
$$;

-- The states in the queue that a cursor does not cover. A state may be returned twice. (`offset 0` keeps the
-- planner from pushing the caller's conditions down, to an index with dead entries.)
create or replace function penstock.uncovered_states(claim_cursor penstock.claim_cursors)
returns setof penstock.partition_states language sql stable rows 10
as $$
  select s.* from penstock.partition_states s
  where s.group_pk = (claim_cursor).group_pk and s.xid >= (claim_cursor).next_xid and s.queued
  union all
  select s.* from penstock.partition_states s
  where s.group_pk = (claim_cursor).group_pk and s.xid = any ((claim_cursor).open_xids) and s.queued
  union all
  select s.* from penstock.partition_states s
  where s.group_pk = (claim_cursor).group_pk and s.xid = (claim_cursor).own_xid
    and s.version > (claim_cursor).own_version and s.queued
  union all
  select s.* from unnest((claim_cursor).partitions_before) as b(offset_id)
  cross join lateral penstock.latest_partition_state(b.offset_id) s
  where s.queued
  offset 0
$$;

-- Make new cursors if the last ones are stale: this one, at the given position or where it is, and the one for
-- all types, from which first_unhandled() and oldest_claim() read.
create or replace function penstock.refresh_claim_cursors(
  own penstock.consumer_groups, claim_cursor penstock.claim_cursors, type_ids integer[],
  routed_to bigint, to_position bigint default null, to_version bigint default null)
returns void language plpgsql volatile
as $$
begin
  if penstock.is_stale(claim_cursor) then
    perform penstock.advance_claim_cursor(
      own, claim_cursor.types, type_ids, routed_to, to_position, to_version);
  end if;
  if claim_cursor.types <> '{}' then
    select f.* into claim_cursor from penstock.latest_claim_cursor(own.id, '{}') f;
    if penstock.is_stale(claim_cursor) then
      perform penstock.advance_claim_cursor(own, '{}', null, routed_to, null, null);
    end if;
  end if;
end
$$;

-- Whether a new cursor is needed: this one is some transactions old, or leaves many states uncovered.
create or replace function penstock.is_stale(claim_cursor penstock.claim_cursors)
returns boolean language plpgsql volatile
as $$
begin
  return claim_cursor.id = 0
    or pg_snapshot_xmax(pg_current_snapshot())::text::bigint - claim_cursor.next_xid::text::bigint >= 16
    or exists (select from penstock.uncovered_states(claim_cursor) offset 20);
end
$$;

-- Make a new cursor at this position in the queue, unless another transaction is making one. The caller has
-- found that every partition before it is locked or has no messages of `type_ids`.
create or replace function penstock.advance_claim_cursor(
  own penstock.consumer_groups, types text[], type_ids integer[], routed_to bigint,
  to_position bigint, to_version bigint)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
declare
  most_before constant integer := 20;
  moment constant timestamptz := clock_timestamp();
  own_xid constant xid8 := pg_current_xact_id();
  claim_cursor penstock.claim_cursors;
begin
  if not pg_try_advisory_xact_lock(1885693288, own.id) then
    return;
  end if;
  select f.* into claim_cursor from penstock.latest_claim_cursor(own.id, types) f;  -- under the lock
  if to_position is null or (to_position, to_version) < (claim_cursor.queue_position, claim_cursor.version) then
    to_position := claim_cursor.queue_position;
    to_version := claim_cursor.version;
  end if;

  with before as (
    -- the states before the new cursor
    select s.offset_id, s.queue_position, s.version, s.due, s.last_position
    from penstock.uncovered_states(claim_cursor) s
    where (s.queue_position, s.version) < (to_position, to_version) or s.due < moment
    union all
    (select s.offset_id, s.queue_position, s.version, s.due, s.last_position
     from penstock.partition_states s join penstock.partitions p on p.offset_id = s.offset_id
     where s.group_pk = own.id and s.queue_position is not null
       and (s.queue_position, s.version) >= (claim_cursor.queue_position, claim_cursor.version)
       and (s.queue_position, s.version) < (to_position, to_version)
       and (type_ids is null or exists (
         select from penstock.pending_positions_of(type_ids, own, p, s.last_position, routed_to, 1)))
     order by s.queue_position, s.version limit most_before + 1)
    union all
    (select s.offset_id, s.queue_position, s.version, s.due, s.last_position
     from penstock.partition_states s
     where s.group_pk = own.id and s.due is not null and s.due >= claim_cursor.due and s.due < moment
     order by s.due, s.version limit most_before + 1)
  ), kept as (
    -- those of them that have messages for these claims
    select b.* from before b
    where type_ids is null or b.due is not null or exists (
      select from penstock.partitions p
      cross join lateral penstock.pending_positions_of(
        type_ids, own, p, b.last_position, routed_to, 1)
      where p.offset_id = b.offset_id)
  ), found as (
    select array_agg(distinct b.offset_id) as offset_ids, min(b.queue_position) as queue_position,
      min(b.due) as due
    from kept b
  ), first_pending as (
    -- the first message that is not handled
    select n.next_position, n.version from (
      (select s.next_position, s.version from penstock.partition_states s
       where s.group_pk = own.id and s.next_position is not null and s.parked_at is null
         and (s.next_position, s.version) >= (claim_cursor.next_position, claim_cursor.next_version)
       order by s.next_position, s.version limit 1)
      union all
      select s.next_position, s.version from penstock.uncovered_states(claim_cursor) s
      where s.next_position is not null
    ) n
    order by n.next_position, n.version limit 1
  )
  insert into penstock.claim_cursors
    (group_pk, types_key, types, queue_position, version, due, next_position, next_version, partitions_before,
     next_xid,
     open_xids, own_xid, own_version)
  select own.id, claim_cursor.types_key, types,
    case when few.enough then to_position else least(f.queue_position, to_position) end,
    case when few.enough or f.queue_position is null then to_version else 0 end,
    case when few.enough then moment else least(f.due, moment) end,
    coalesce(n.next_position, routed_to + 1), coalesce(n.version, 0),
    case when few.enough then coalesce(f.offset_ids, '{}') else '{}' end,
    now.next::text::xid8,
    array(
      select pg_snapshot_xip(now.snapshot)
      union all
      select x.xid::text::xid8 from generate_series(now.first, now.next - 1) as x(xid)
      where x.xid::text::xid8 <> own_xid),
    own_xid,
    coalesce((
      select s.version from penstock.partition_states s
      where s.group_pk = own.id and s.xid = own_xid and s.queued
      order by s.version desc limit 1), 0)
  from found f
  cross join lateral (
    select coalesce(cardinality(f.offset_ids), 0) <= most_before as enough
  ) few
  left join first_pending n on true
  cross join lateral (
    -- the snapshot of this statement: this transaction may be the first that it does not list, or one
    -- of the next; then those before it are listed here
    select s.snapshot, s.first, case
      when s.own between s.first and s.first + 100 then s.own + 1 else s.first end as next
    from (
      select pg_current_snapshot() as snapshot, own_xid::text::bigint as own,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint as first
    ) s
  ) now;
  delete from penstock.claim_cursors f
  where f.group_pk = own.id and f.types_key = claim_cursor.types_key and f.id = claim_cursor.id;
end
$$;

-- The first unhandled message of all partitions that are not parked.
create or replace function penstock.first_unhandled(group_pk integer)
returns bigint language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  claim_cursor penstock.claim_cursors;
begin
  select f.* into claim_cursor from penstock.latest_claim_cursor(first_unhandled.group_pk, '{}') f;
  return least(
    (select s.next_position from penstock.partition_states s
     where s.group_pk = first_unhandled.group_pk and s.next_position is not null
       and s.parked_at is null
       and (s.next_position, s.version) >= (claim_cursor.next_position, claim_cursor.next_version)
     order by s.next_position, s.version limit 1),
    (select min(s.next_position) from penstock.uncovered_states(claim_cursor) s));
end
$$;

-- The oldest claim, of the thousand whose leases end first.
create or replace function penstock.oldest_claim(group_pk integer)
returns table (claimed_at timestamptz, partition_key text, claimed_by text)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  claim_cursor penstock.claim_cursors;
begin
  select f.* into claim_cursor from penstock.latest_claim_cursor(oldest_claim.group_pk, '{}') f;
  return query
    select c.claimed_at, p.partition_key, c.claimed_by
    from (
      (select s.* from penstock.partition_states s
       where s.group_pk = oldest_claim.group_pk and s.due is not null and s.due >= claim_cursor.due
       order by s.due, s.version limit 1000)
      union all
      select s.* from penstock.uncovered_states(claim_cursor) s
    ) c
    join penstock.partitions p on p.offset_id = c.offset_id
    where c.token is not null
    order by c.claimed_at limit 1;
end
$$;
