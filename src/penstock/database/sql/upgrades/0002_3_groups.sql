-- Partitioned groups of version 1: what changes with every call moves out of `partitions`,
-- `consumer_groups` and `group_types` into tables whose rows are never updated, see 33_groups.sql.
-- Offsets, claims, leases, retries, parked partitions and what is still to be routed are kept.

drop function if exists penstock.tell_partitions(integer, bigint[]);
drop function if exists penstock.tell_partitions(integer, bigint[], bigint);
drop function if exists penstock.find_next(bigint[]);
drop function if exists penstock.next_in_feeds(integer, bigint[], bigint);
drop function if exists penstock.feed_keys(text[]);
drop function if exists penstock.held_partition(text, bigint, uuid);
drop function if exists penstock.claim_next(text, text[], text[], text, integer, interval);

do $$
begin
  if to_regclass('penstock.partitions') is null
      or to_regclass('penstock.partition_states') is not null then
    return;
  end if;
  drop function if exists penstock.pending_positions(
    penstock.consumer_groups, penstock.partitions, integer[], bigint);
  drop function if exists penstock.ready_partition(penstock.consumer_groups, integer[]);
  drop function if exists penstock.fan_out(penstock.consumer_groups, integer);
  drop function if exists penstock.claimed_low(penstock.consumer_groups);

  -- what not every schema of version 1 has
  create table if not exists penstock.group_types (
    group_pk integer not null,
    type_id integer not null,
    routed_to bigint,
    primary key (group_pk, type_id)
  );
  alter table penstock.group_types
    add column if not exists handled boolean not null default true,
    add column if not exists routed_to bigint;
  alter table penstock.group_types alter column handled drop default;
  create table if not exists penstock.group_fanouts (
    id bigint generated always as identity primary key,
    group_pk integer not null,
    feed bigint not null,
    global_position bigint not null,
    after_offset_id bigint not null default 0
  );
  create table if not exists penstock.group_rechecks (
    group_pk integer not null,
    offset_id bigint not null,
    primary key (group_pk, offset_id)
  );
  alter table penstock.consumer_groups
    add column if not exists handled_types text[] not null default '{}',
    add column if not exists looked_at bigint not null default -1,
    add column if not exists replayed_by text[],
    add column if not exists narrowed boolean not null default true;
  alter table penstock.consumer_groups drop column if exists replaying_to;
  alter table penstock.partitions
    drop constraint if exists partitions_group_pk_partition_key_key,
    add column if not exists replaying_to bigint not null default 0,
    add column if not exists claimed_by text,
    add column if not exists claimed_at timestamptz,
    add column if not exists attempts integer not null default 0,
    add column if not exists retry_at timestamptz,
    add column if not exists error text,
    add column if not exists parked_at timestamptz;

  create table penstock.partition_states (
    offset_id bigint not null,
    version bigint generated always as identity,
    group_pk integer not null,
    xid xid8 not null default pg_current_xact_id(),
    last_position bigint not null default 0,
    next_position bigint,
    turn bigint,
    due timestamptz,
    queued boolean not null generated always as (turn is not null or due is not null) stored,
    token uuid,
    claimed_by text,
    claimed_at timestamptz,
    claimed_types text[] not null default '{}',
    claim_order text not null default 'oldest' check (claim_order in ('oldest', 'round_robin')),
    attempts integer not null default 0,
    error text,
    parked_at timestamptz,
    finished_token uuid,
    finished_call text,
    primary key (offset_id, version)
  ) with (autovacuum_vacuum_scale_factor = 0.02);
  insert into penstock.partition_states
    (offset_id, group_pk, last_position, next_position, turn, due, token, claimed_by, claimed_at,
     attempts, error, parked_at)
  select p.offset_id, p.group_pk, p.last_position, p.next_position,
    case when p.token is null and p.parked_at is null and p.retry_at is null
      then p.next_position end,
    case
      when p.token is not null then p.lease_until
      when p.parked_at is null and p.next_position is not null then p.retry_at end,
    p.token, p.claimed_by, p.claimed_at, p.attempts, p.error, p.parked_at
  from penstock.partitions p
  order by p.next_position, p.offset_id;

  create table penstock.group_progress (
    group_pk integer not null,
    version bigint generated always as identity,
    routed_to bigint not null default 0,
    looked_at bigint not null default -1,
    late jsonb not null default '{}',
    fanned_out bigint not null default 0,
    fanned_to bigint not null default 0,
    rechecked bigint not null default 0,
    primary key (group_pk, version)
  );
  insert into penstock.group_progress (group_pk, routed_to, late, fanned_out, fanned_to)
  select g.id, g.routed_to,
    coalesce((
      select jsonb_object_agg(t.type_id, t.routed_to) from penstock.group_types t
      where t.group_pk = g.id and t.routed_to is not null), '{}'),
    coalesce(f.id - 1, 0), coalesce(f.after_offset_id, 0)
  from penstock.consumer_groups g
  left join lateral (
    -- the fan-out that is under way
    select f.id, f.after_offset_id from penstock.group_fanouts f
    where f.group_pk = g.id order by f.id limit 1
  ) f on true;

  -- claims compare the types in this order; some may have named fewer
  update penstock.consumer_groups g
  set handled_types = array(
    select distinct t collate "C" from unnest(g.handled_types) t order by 1);
  alter table penstock.consumer_groups
    drop column routed_to, drop column looked_at, alter column narrowed set default false;
  alter table penstock.group_types drop column routed_to;

  -- a feed's key is a hash: two partitions may have the same
  drop index if exists penstock.partitions_feed;
  drop index if exists penstock.partitions_ready;
  drop index if exists penstock.partitions_claimed;
  drop index if exists penstock.partitions_parked;
  create table if not exists penstock.group_replays (
    group_pk integer not null,
    feed bigint not null,
    global_position bigint not null,
    primary key (group_pk, feed)
  );
  alter table penstock.group_replays
    drop constraint if exists group_replays_pkey,
    add column if not exists partition_values text[];
  update penstock.group_replays r set partition_values = p.partition_values
  from penstock.partitions p where p.group_pk = r.group_pk and p.feed = r.feed;
  alter table penstock.partitions
    drop column last_position, drop column next_position, drop column token,
    drop column claimed_by, drop column claimed_at, drop column lease_until,
    drop column attempts, drop column retry_at, drop column error, drop column parked_at;

  drop index if exists penstock.group_fanouts_group;
  alter table penstock.group_fanouts
    drop constraint group_fanouts_pkey,
    drop column after_offset_id,
    add primary key (group_pk, id);
  alter table penstock.group_rechecks drop constraint group_rechecks_pkey;
  alter table penstock.group_rechecks add column id bigint generated always as identity;
  alter table penstock.group_rechecks add primary key (group_pk, id);
end
$$;
