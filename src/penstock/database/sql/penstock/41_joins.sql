-- Joins: how many of a set of outbox messages are finished, done or failed.
--
-- A join expects a number of steps. Each member message counts once, when it is done or failed, and its
-- first outcome counts: in the transaction that finishes the message, or reported by hand. A waiting
-- message is resolved when the last step is counted (42_join_waits.sql).
--
-- The promise: attaching a step and counting it cost the same at the 2,000th step as at the first, also in
-- one transaction, and also while an open snapshot holds vacuum back. So the row of a join is locked for
-- each step, but not changed; the counts are in `join_steps`, which has versioned rows (01_schema.sql).
--
-- Every decision that depends on the steps of a join, not only a count, replaces their version. So of
-- two transactions with snapshots from before, one fails and is retried.
--
-- Lock order: outbox rows, then join rows in the order of their ids. Only waking goes the other way, from
-- a join to its wait, and only to a wait that sleeps, which no transaction that needs the join has locked.

create table if not exists penstock.joins (
  join_id uuid primary key,
  grouping_key text,
  expected_steps integer not null check (expected_steps >= 1),
  status text not null default 'pending'
    check (status in ('pending', 'completed', 'failed', 'cancelled')),
  metadata text,
  times_out_at timestamptz,
  wait_id uuid,
  follow_up_id uuid,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);

create index if not exists joins_grouping_key on penstock.joins (grouping_key, status, created_at, join_id)
  where grouping_key is not null;
create index if not exists joins_status on penstock.joins (status, created_at);
create index if not exists joins_finished on penstock.joins (updated_at) where status <> 'pending';

-- How many steps of a join are attached, completed and failed. A versioned row for each join.
create table if not exists penstock.join_steps (
  join_id uuid not null references penstock.joins on delete cascade,
  version bigint not null default 0,
  attached_steps integer not null default 0,
  completed_steps integer not null default 0,
  failed_steps integer not null default 0,
  updated_at timestamptz not null default clock_timestamp(),
  primary key (join_id, version),
  check (completed_steps + failed_steps <= attached_steps)
);

create table if not exists penstock.join_members (
  join_id uuid not null references penstock.joins on delete cascade,
  message_id uuid not null,
  status text not null default 'pending' check (status in ('pending', 'completed', 'failed')),
  created_at timestamptz not null default clock_timestamp(),
  primary key (join_id, message_id)
);

create index if not exists join_members_pending on penstock.join_members (message_id)
  where status = 'pending';

-- The joins with their steps.
create or replace view penstock.join_progress as
select j.join_id, j.grouping_key, j.expected_steps, s.attached_steps, s.completed_steps,
  s.failed_steps, j.status, j.metadata, j.times_out_at, j.wait_id, j.follow_up_id, j.created_at,
  greatest(j.updated_at, s.updated_at) as updated_at
from penstock.joins j
cross join lateral (
  select n.attached_steps, n.completed_steps, n.failed_steps, n.updated_at
  from penstock.join_steps n where n.join_id = j.join_id order by n.version desc limit 1
) s;

-- The status of a join, with its timeout: after that it has failed, even if its wait is not resolved yet.
create or replace function penstock.join_status(one penstock.join_progress)
returns text language sql volatile
as $$
  select case when one.status = 'pending' and one.times_out_at <= clock_timestamp()
      and one.completed_steps + one.failed_steps < one.expected_steps
    then 'failed' else one.status end
$$;

create or replace function penstock.start_join(
  join_id uuid, grouping_key text, expected_steps integer, metadata text default null,
  timeout interval default null)
returns uuid language sql volatile
as $$
  with started as (
    insert into penstock.joins (join_id, grouping_key, expected_steps, metadata, times_out_at)
    values (start_join.join_id, start_join.grouping_key, start_join.expected_steps,
      start_join.metadata, clock_timestamp() + start_join.timeout)
    on conflict (join_id) do nothing
    returning join_id
  )
  insert into penstock.join_steps (join_id) select s.join_id from started s;
  select start_join.join_id
$$;

-- Make messages members of joins. One that is finished already counts at once. `fresh` are those that this
-- transaction has enqueued.
create or replace function penstock.attach_to_joins(
  join_ids uuid[], message_ids uuid[], fresh uuid[] default '{}')
returns void language plpgsql volatile
as $$
declare
  known constant uuid[] := array(select unnest(message_ids) except select unnest(fresh));
  wanted uuid;
begin
  if join_ids = '{}' then
    return;
  end if;
  -- Wait for a transaction that is finishing one of them, so that one of the two counts it. The update makes
  -- a transaction fail that finishes it in an older snapshot, in which it does not see this member.
  perform from penstock.outbox o where o.id = any (known) order by o.id for no key update;
  update penstock.outbox o set attempts = o.attempts
  where o.id = any (known) and o.state in ('ready', 'in_progress');
  foreach wanted in array array(select distinct j from unnest(join_ids) j order by j) loop
    perform penstock.attach_to_join(wanted, message_ids);
  end loop;
end
$$;

-- Make messages, which the caller has locked, members of one join.
create or replace function penstock.attach_to_join(join_id uuid, message_ids uuid[])
returns void language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own constant penstock.join_progress := penstock.locked_join(attach_to_join.join_id);
  new_ids uuid[];
  known_ids uuid[];
  unknown uuid;
begin
  with added as (
    insert into penstock.join_members (join_id, message_id)
    select own.join_id, i.id from unnest(message_ids) as i(id)
    on conflict do nothing
    returning message_id
  )
  select array_agg(a.message_id) into new_ids from added a;
  if new_ids is null then
    return;
  end if;
  if penstock.join_status(own) <> 'pending' then
    raise exception using errcode = 'PS061',
      message = format('join %s is %s, and accepts no more members',
        own.join_id, penstock.join_status(own)),
      detail = jsonb_build_object('join_id', own.join_id, 'status', penstock.join_status(own));
  end if;
  known_ids := array(select o.id from penstock.outbox o where o.id = any (new_ids));
  if cardinality(known_ids) < cardinality(new_ids) then
    unknown := (select unnest(new_ids) except select unnest(known_ids) limit 1);
    raise exception using errcode = 'PS062',
      message = format('there is no outbox message %s', unknown),
      detail = jsonb_build_object('message_id', unknown);
  end if;
  if own.wait_id = any (new_ids) then
    raise exception using errcode = 'PS067',
      message = format('message %s waits for join %s', own.wait_id, own.join_id),
      detail = jsonb_build_object('join_id', own.join_id, 'message_id', own.wait_id);
  end if;
  if own.attached_steps + cardinality(new_ids) > own.expected_steps then
    raise exception using errcode = 'PS063',
      message = format('join %s expects %s steps, and all are attached', own.join_id, own.expected_steps),
      detail = jsonb_build_object('join_id', own.join_id, 'expected_steps', own.expected_steps);
  end if;

  perform penstock.refuse_cycle(own.join_id, own.wait_id, new_ids);

  perform penstock.add_steps(own.join_id, cardinality(new_ids));
  perform penstock.count_steps(array[own.join_id], array_agg(o.id), o.state)
  from penstock.outbox o
  where o.id = any (new_ids) and o.state in ('done', 'failed')
  group by o.state;
end
$$;

-- Count these messages, which have just been finished, in all the joins they are members of.
create or replace function penstock.count_in_joins(message_ids uuid[], outcome text)
returns void language plpgsql volatile
as $$
declare
  affected uuid[];
begin
  affected := array(
    select m.join_id from penstock.join_members m
    where m.message_id = any (message_ids) and m.status = 'pending');
  if affected <> '{}' then
    perform from penstock.joins j where j.join_id = any (affected) order by j.join_id for update;
    perform penstock.count_steps(affected, message_ids, outcome);
  end if;
end
$$;

-- Count members as done or failed in joins that the caller has locked: each once, and none in a join that
-- is cancelled or timed out. Wakes the wait of a join whose last step is counted.
create or replace function penstock.count_steps(join_ids uuid[], message_ids uuid[], outcome text)
returns void language plpgsql volatile
as $$
declare
  landed record;
begin
  for landed in
    with counted as (
      -- the members whose first outcome this is
      update penstock.join_members m
      set status = case when outcome = 'done' then 'completed' else 'failed' end
      from penstock.joins j
      where j.join_id = m.join_id and j.status = 'pending' and m.join_id = any (join_ids)
        and coalesce(j.times_out_at > clock_timestamp(), true)
        and m.message_id = any (message_ids) and m.status = 'pending'
      returning m.join_id, j.wait_id, j.expected_steps
    )
    select c.join_id, c.wait_id, c.expected_steps, count(*)::int as steps
    from counted c group by c.join_id, c.wait_id, c.expected_steps
  loop
    if landed.expected_steps = penstock.add_steps(landed.join_id,
      completed => case when outcome = 'done' then landed.steps else 0 end,
      failed => case when outcome = 'done' then 0 else landed.steps end)
    then
      perform penstock.wake_wait(landed.wait_id);
    end if;
  end loop;
end
$$;

-- Report a member's outcome by hand.
create or replace function penstock.report_step(join_id uuid, message_id uuid, outcome text)
returns void language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own constant penstock.join_progress := penstock.locked_join(report_step.join_id);
begin
  if not exists (
    select from penstock.join_members m
    where m.join_id = own.join_id and m.message_id = report_step.message_id
  ) then
    raise exception using errcode = 'PS064',
      message = format('message %s is not a member of join %s', report_step.message_id, own.join_id),
      detail = jsonb_build_object('join_id', own.join_id, 'message_id', report_step.message_id);
  end if;
  perform penstock.count_steps(array[own.join_id], array[report_step.message_id], outcome);
end
$$;

create or replace function penstock.cancel_join(join_id uuid)
returns boolean language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own constant penstock.join_progress := penstock.locked_join(cancel_join.join_id);
begin
  if own.status = 'cancelled' then
    return false;
  elsif own.status <> 'pending' then
    raise exception using errcode = 'PS061',
      message = format('join %s is %s already', own.join_id, own.status),
      detail = jsonb_build_object('join_id', own.join_id, 'status', own.status);
  end if;
  update penstock.joins j set status = 'cancelled', updated_at = clock_timestamp()
  where j.join_id = own.join_id;
  perform penstock.wake_wait(own.wait_id);
  return true;
end
$$;

-- Remove at most `most` joins that were resolved or cancelled before a time, and whose wait is finished.
create or replace function penstock.clean_joins(before timestamptz, most integer)
returns bigint language plpgsql volatile
as $$
declare
  removed bigint;
begin
  delete from penstock.joins j
  where j.join_id = any (array(
    select f.join_id from penstock.joins f
    where f.status <> 'pending' and f.updated_at < before
      and not exists (
        select from penstock.outbox o
        where o.id = f.wait_id and o.state in ('ready', 'in_progress'))
    order by f.updated_at limit most
    for update skip locked));
  get diagnostics removed = row_count;
  return removed;
end
$$;

-- Lock a join, and return it with its steps.
create or replace function penstock.locked_join(join_id uuid)
returns penstock.join_progress language plpgsql volatile
as $$
declare
  locked penstock.join_progress;
begin
  perform from penstock.joins j where j.join_id = locked_join.join_id for update;
  if not found then
    raise exception using errcode = 'PS060',
      message = format('there is no join %s', join_id),
      detail = jsonb_build_object('join_id', join_id);
  end if;
  -- in a separate statement, which sees what was committed while this one waited for the lock
  select p.* into locked from penstock.join_progress p where p.join_id = locked_join.join_id;
  return locked;
end
$$;

-- Add to the steps of a join that the caller has locked, or only raise the version. Returns how many are
-- completed or failed.
create or replace function penstock.add_steps(
  join_id uuid, attached integer default 0, completed integer default 0, failed integer default 0)
returns integer language plpgsql volatile
as $$
#variable_conflict use_column
declare
  finished integer;
begin
  update penstock.join_steps s
  set version = s.version + 1, updated_at = clock_timestamp(),
    attached_steps = s.attached_steps + add_steps.attached,
    completed_steps = s.completed_steps + add_steps.completed,
    failed_steps = s.failed_steps + add_steps.failed
  where s.join_id = add_steps.join_id and s.version = (
    select n.version from penstock.join_steps n
    where n.join_id = add_steps.join_id order by n.version desc limit 1)
  returning s.completed_steps + s.failed_steps into finished;
  return finished;
end
$$;
