-- Joins: a follow-up message that is enqueued when a set of outbox messages is finished.
--
-- A join expects a number of steps. Each member message counts once, when it is done or failed, and its
-- first outcome counts: in the transaction that finishes the message, or reported by hand. A waiting
-- message, topic join.wait, sleeps in the outbox until the last step is counted; resolving it sets the
-- join's status, enqueues the follow-up and finishes the wait in one transaction, once.
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

create index if not exists joins_grouping_key on penstock.joins (grouping_key)
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

-- One row, whose version rises when a wait is attached to a join that has a wait (see `refuse_cycle`).
create table if not exists penstock.join_nesting (version bigint primary key);
insert into penstock.join_nesting select 0
where not exists (select from penstock.join_nesting);

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

create or replace function penstock.wake_wait(wait_id uuid)
returns void language plpgsql volatile
as $$
begin
  update penstock.outbox o set due = clock_timestamp()
  where o.id = wake_wait.wait_id and o.state = 'ready'
    and (o.due is null or o.due > clock_timestamp());
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

-- Refuse a cycle: a wait cannot be a step of a join that, directly or through others, waits for the wait's
-- own join. `wait_id` is the wait of the join, and `message_ids` are to become its steps.
--
-- A join without a wait is in no cycle, and a wait for it would need the lock on the join that the caller
-- holds. For the others there is one advisory lock, so that two transactions do not close a cycle together;
-- in an older snapshot, which does not show the other's rows, the update of the version conflicts.
create or replace function penstock.refuse_cycle(join_id uuid, wait_id uuid, message_ids uuid[])
returns void language plpgsql volatile
as $$
#variable_conflict use_column
declare
  cycle record;
begin
  if wait_id is null or not exists (
    select from penstock.outbox o
    where o.id = any (message_ids) and o.topic = 'join.wait' and o.state in ('ready', 'in_progress')
  ) then
    return;
  end if;
  perform pg_advisory_xact_lock(7274503915068317241);
  update penstock.join_nesting n set version = n.version + 1
  where n.version = (select max(l.version) from penstock.join_nesting l);

  with recursive above as (
    -- the join, and then the joins that have the wait for the one before as a step
    select refuse_cycle.join_id as join_id, refuse_cycle.wait_id as wait_id
    union
    select j.join_id, j.wait_id
    from above a
    join penstock.join_members m on m.message_id = a.wait_id and m.status = 'pending'
    join penstock.joins j on j.join_id = m.join_id and j.status = 'pending'
  )
  select a.join_id, a.wait_id into cycle from above a where a.wait_id = any (message_ids) limit 1;
  if found then
    raise exception using errcode = 'PS068',
      message = format('join %s waits for join %s, so the wait %s cannot be a step of it',
        cycle.join_id, refuse_cycle.join_id, cycle.wait_id),
      detail = jsonb_build_object('join_id', refuse_cycle.join_id, 'message_id', cycle.wait_id,
        'waiting_join_id', cycle.join_id);
  end if;
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

-- Enqueue the message that waits for a join: asleep until its last step, or until it times out. There is
-- one at a time; another only after one that was finished by hand, or that failed. A repeated call
-- returns the id of the first.
create or replace function penstock.enqueue_join_wait(wait_id uuid, join_id uuid, payload bytea)
returns uuid language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own constant penstock.join_progress := penstock.locked_join(enqueue_join_wait.join_id);
  known record;
begin
  select o.id, o.payload = enqueue_join_wait.payload as is_same,
    o.state in ('ready', 'in_progress') as is_waiting
  into known from penstock.outbox o where o.id = own.wait_id;
  if known.id = enqueue_join_wait.wait_id
      or (known.is_same and (known.is_waiting or own.status <> 'pending')) then
    return known.id;
  elsif own.status <> 'pending' then
    raise exception using errcode = 'PS061',
      message = format('join %s is %s already', own.join_id, own.status),
      detail = jsonb_build_object('join_id', own.join_id, 'status', own.status);
  elsif known.is_waiting then
    raise exception using errcode = 'PS065',
      message = format('join %s already has a wait', own.join_id),
      detail = jsonb_build_object('join_id', own.join_id, 'wait_id', own.wait_id);
  end if;
  insert into penstock.outbox (id, topic, payload, encoding, due)
  values (enqueue_join_wait.wait_id, 'join.wait', enqueue_join_wait.payload, 'json',
    case when own.completed_steps + own.failed_steps = own.expected_steps
      then clock_timestamp() else own.times_out_at end);
  update penstock.joins j set wait_id = enqueue_join_wait.wait_id, updated_at = clock_timestamp()
  where j.join_id = own.join_id;
  perform penstock.add_steps(own.join_id);
  return enqueue_join_wait.wait_id;
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

-- Resolve the wait that this token holds: the join's status, the follow-up and the end of the wait, in
-- one transaction. Returns the status; 'pending' if steps are missing, and then the wait sleeps again. A
-- repeated call with the same token returns the same.
create or replace function penstock.resolve_join(
  wait_id uuid, token uuid, join_id uuid, fail_if_any_step_failed boolean,
  follow_up_id uuid,
  on_complete_topic text, on_complete_payload bytea, on_complete_encoding text,
  on_fail_topic text, on_fail_payload bytea, on_fail_encoding text)
returns text language plpgsql volatile
as $$
#variable_conflict use_column
declare
  wait record;
  own penstock.join_progress;
  outer_joins uuid[];
  missing integer;
  outcome text;
  next_topic text;
begin
  select o.state, o.token, o.last_token, o.last_outcome into wait
  from penstock.outbox o where o.id = resolve_join.wait_id for update;
  if wait.last_token = resolve_join.token and wait.last_outcome in ('ready', 'done') then
    return case wait.last_outcome when 'ready' then 'pending' else (
      select j.status from penstock.joins j where j.join_id = resolve_join.join_id) end;
  elsif wait.token = resolve_join.token and wait.state in ('in_progress', 'ready') then
    null;
  else
    raise exception using errcode = 'PS066',
      message = format('the lease of the wait %s has ended', resolve_join.wait_id),
      detail = jsonb_build_object('message_ids', jsonb_build_array(resolve_join.wait_id));
  end if;
  -- the wait may be a step of other joins: they are locked with its own, in order
  outer_joins := array(
    select m.join_id from penstock.join_members m
    where m.message_id = resolve_join.wait_id and m.status = 'pending');
  perform from penstock.joins j
  where j.join_id = any (outer_joins || resolve_join.join_id) order by j.join_id for update;
  own := penstock.locked_join(resolve_join.join_id);
  if own.status = 'pending' then
    perform penstock.add_steps(own.join_id);
  end if;

  missing := own.expected_steps - own.completed_steps - own.failed_steps;
  if own.status = 'pending' and missing > 0
      and coalesce(own.times_out_at > clock_timestamp(), true) then
    update penstock.outbox o
    set state = 'ready', token = null, lease_until = null, attempts = o.attempts - 1,
      due = own.times_out_at, last_token = resolve_join.token, last_outcome = 'ready'
    where o.id = resolve_join.wait_id;
    return 'pending';
  end if;

  if own.status = 'pending' then
    outcome := case
      when missing > 0 or (fail_if_any_step_failed and own.failed_steps > 0) then 'failed'
      else 'completed' end;
    next_topic := case outcome when 'completed' then on_complete_topic else on_fail_topic end;
    update penstock.joins j
    set status = outcome, updated_at = clock_timestamp(),
      follow_up_id = case when next_topic is not null then resolve_join.follow_up_id end
    where j.join_id = own.join_id;
    if next_topic is not null then
      insert into penstock.outbox (id, topic, payload, encoding, correlation_id)
      values (resolve_join.follow_up_id, next_topic,
        case outcome when 'completed' then on_complete_payload else on_fail_payload end,
        case outcome when 'completed' then on_complete_encoding else on_fail_encoding end,
        own.join_id::text);
    end if;
  end if;

  update penstock.outbox o
  set state = 'done', token = null, lease_until = null, finished_at = clock_timestamp(),
    last_token = resolve_join.token, last_outcome = 'done'
  where o.id = resolve_join.wait_id;
  perform penstock.count_steps(outer_joins, array[resolve_join.wait_id], 'done');
  return coalesce(outcome, own.status);
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

-- These look up rows by index. The planner may prefer a plan without one for a table that is small, or was
-- when its statistics were gathered; but a session caches its plans while the table grows.
do $$
declare
  one regprocedure;
begin
  for one in
    select p.oid::regprocedure from pg_proc p
    where p.pronamespace = 'penstock'::regnamespace and p.proname in (
      'enqueue', 'claim_outbox', 'lock_ready', 'reap_outbox', 'finish_outbox', 'abandon_outbox',
      'not_settled', 'extend_outbox', 'retry_outbox', 'clean_outbox', 'ready_topics',
      'locked_join', 'add_steps', 'wake_wait', 'count_in_joins', 'count_steps', 'attach_to_joins',
      'attach_to_join', 'refuse_cycle', 'report_step', 'enqueue_join_wait', 'cancel_join',
      'resolve_join', 'clean_joins')
  loop
    execute format('alter function %s set enable_seqscan = off set enable_bitmapscan = off'
      ' set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off', one);
  end loop;
end
$$;
