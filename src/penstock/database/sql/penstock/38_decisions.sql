-- Decisions: the state of a boundary is kept, by clients or as a snapshot, and only what came later is read.
--
-- A state is kept with the guard under which it is true, see 31_boundaries.sql: it is made of every matching
-- message at or below `low`, and of those within `seen`.
--
-- The promise: a kept state costs a read of what it has not seen, and never a wrong decision. How it is kept:
-- the read returns every matching message that the guard has not seen, with what the client needs to find out
-- that its state cannot be continued: the log was truncated since, or restored to an earlier moment, or
-- messages of its types were removed. Then the client begins with an older state, or reads the whole boundary.
-- The new guard covers what was read, and the append checks it, as ever.
--
-- A snapshot is written after the decision, in a transaction of its own. It is never more than a beginning, and
-- never knows more than the log: whatever happens to it, decisions are the same.

-- A versioned row, see 01_schema.sql: the key ends in `number`.
create table if not exists penstock.decider_snapshots (
  decider text not null,
  version text not null,                   -- of the decider: each has its own snapshots
  boundary text not null,                  -- a digest of the conditions
  number bigint not null default 0,        -- how often it was replaced
  conditions jsonb not null,
  low bigint not null,                     -- the guard
  seen int8multirange not null,
  "position" bigint not null,              -- where it ends: no message of it is above
  removed_to bigint not null,              -- up to where messages of its types had been removed
  incarnation uuid not null,               -- of the log, see 08_identity.sql
  state text not null,                     -- as JSON
  saved_at timestamptz not null default clock_timestamp(),
  primary key (decider, version, boundary, number)
);

-- Read the messages that match and that a guard has not seen. The first row also carries: `complete_to`, up to
-- which nothing is missing now, the new guard's `low`; the last position at which a message of the conditions'
-- types was removed, or 0; the incarnation and the end of the log. There is always a first row. An archived message
-- is a row without an id: see 24_archived_attributes.sql.
--
-- One statement reads them all: a message is in the index, or was removed.
create or replace function penstock.read_unseen(conditions jsonb, low bigint, seen int8multirange)
returns table (
  complete_to bigint, removed_to bigint, incarnation uuid, last_position bigint,
  id varchar, stream_name varchar, type varchar, "position" bigint, global_position bigint,
  data varchar, metadata varchar, "time" timestamp
)
language plpgsql volatile
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  complete bigint;
begin
  perform penstock.refuse_old_snapshot();
  perform penstock.check_conditions(conditions);
  complete := penstock.complete_to();

  return query
    with facts as (
      -- what the client compares its state with
      select complete as complete_to, i.incarnation, penstock.last_position() as last_position, (
        select coalesce(max(r.global_position), 0)
        from jsonb_array_elements(conditions) as c(condition)
        cross join lateral (
          select t.id from penstock.message_types t where t.type = c.condition ->> 'type' offset 0
        ) t
        cross join lateral (
          select a.global_position from penstock.message_attributes a
          where a.key_pair = penstock.removal_key() and a.type_id = t.id
          order by a.global_position desc limit 1
        ) r
      ) as removed_to
      from penstock.identity i
    ), unseen as (
      -- the messages, and null, which comes first, for the facts
      select null::bigint as position
      union all
      select p.position
      from penstock.matching_positions(conditions, read_unseen.low, read_unseen.seen) p(position)
    )
    select f.complete_to, f.removed_to, f.incarnation, f.last_position,
      m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
      m.data::varchar, m.metadata::varchar, m.time
    from unseen u
    left join facts f on u.position is null
    left join lateral (
      select m.* from penstock.indexed_messages m
      where m.global_position = u.position limit 1 offset 0
    ) m on true
    order by u.position nulls first;
end
$$;

-- The newest version of a snapshot's row.
create or replace function penstock.latest_snapshot(decider text, version text, boundary text)
returns setof penstock.decider_snapshots language sql stable rows 1
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  select s.* from penstock.decider_snapshots s
  where s.decider = latest_snapshot.decider and s.version = latest_snapshot.version
    and s.boundary = latest_snapshot.boundary
  order by s.number desc limit 1
$$;

-- The snapshot of a boundary, for one version of a decider. `firsts` and `lasts` are the ranges of `seen`.
create or replace function penstock.load_snapshot(
  decider text, version text, boundary text, conditions jsonb)
returns table (
  low bigint, firsts bigint[], lasts bigint[], removed_to bigint, incarnation uuid, state text)
language sql stable
as $$
  select s.low,
    array(select lower(r) from unnest(s.seen) r),
    array(select upper(r) - 1 from unnest(s.seen) r),
    s.removed_to, s.incarnation, s.state
  from penstock.latest_snapshot(
    load_snapshot.decider, load_snapshot.version, load_snapshot.boundary) s
  where s.conditions = load_snapshot.conditions
$$;

-- Save a snapshot in place of an earlier one. One that has come further stays, unless it is of a log that was
-- truncated.
create or replace function penstock.save_snapshot(
  decider text, version text, boundary text, conditions jsonb, low bigint, seen int8multirange,
  "position" bigint, removed_to bigint, incarnation uuid, state text)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_variable
declare
  old penstock.decider_snapshots;
begin
  loop
    select s.* into old from penstock.latest_snapshot(decider, version, boundary) s;
    exit when old.position > save_snapshot.position and old.incarnation = save_snapshot.incarnation;
    delete from penstock.decider_snapshots s
    where s.decider = old.decider and s.version = old.version and s.boundary = old.boundary
      and s.number = old.number;
    insert into penstock.decider_snapshots
      (decider, version, boundary, number, conditions, low, seen, position, removed_to, incarnation, state)
    values (decider, version, boundary, coalesce(old.number + 1, 0), conditions, low, seen,
      save_snapshot.position, removed_to, save_snapshot.incarnation, state)
    on conflict on constraint decider_snapshots_pkey do nothing;
    exit when found;  -- else another transaction has replaced it
  end loop;
end
$$;

-- The snapshots of each version of each decider.
create or replace function penstock.list_snapshots()
returns table (
  decider text, version text, boundaries bigint, bytes bigint, oldest timestamptz, newest timestamptz)
language sql stable
as $$
  select s.decider, s.version, count(*), sum(octet_length(s.state))::bigint, min(s.saved_at),
    max(s.saved_at)
  from penstock.decider_snapshots s
  group by s.decider, s.version
  order by s.decider, max(s.saved_at), s.version
$$;

-- Remove the snapshots of a decider: of one version or all, and only those not saved for so long, if given.
-- Returns how many.
create or replace function penstock.remove_snapshots(
  decider text, version text default null, not_saved_for interval default null)
returns bigint language sql volatile
as $$
  with gone as (
    delete from penstock.decider_snapshots s
    where s.decider = remove_snapshots.decider
      and s.version = coalesce(remove_snapshots.version, s.version)
      and (not_saved_for is null or s.saved_at < clock_timestamp() - not_saved_for)
    returning 1
  )
  select count(*) from gone
$$;
