-- Joins: know when a set of outbox messages is all done, and then start what follows.
--
-- A join expects a number of steps. Each member message counts once, when it is done or failed, and its
-- first outcome stands: by itself, in the transaction that finishes the message, or reported by hand.
-- A waiting message, topic join.wait, sleeps in the outbox until the last step lands; resolving it sets
-- the join's status, enqueues the follow-up and finishes the wait in one transaction, once.
--
-- Lock order: outbox rows, then join rows in the order of their ids, then the row of a wait. A join
-- that is resolved locks itself first and its own wait after, and no other outbox row.

create table if not exists penstock.joins (
  join_id uuid primary key,
  grouping_key text,
  expected_steps integer not null check (expected_steps >= 1),
  completed_steps integer not null default 0,
  failed_steps integer not null default 0,
  status text not null default 'pending'
    check (status in ('pending', 'completed', 'failed', 'cancelled')),
  metadata text,
  times_out_at timestamptz,
  wait_id uuid,
  follow_up_id uuid,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  check (completed_steps + failed_steps <= expected_steps)
);

create index if not exists joins_grouping_key on penstock.joins (grouping_key)
  where grouping_key is not null;
create index if not exists joins_status on penstock.joins (status, created_at);

create table if not exists penstock.join_members (
  join_id uuid not null references penstock.joins on delete cascade,
  message_id uuid not null,
  status text not null default 'pending' check (status in ('pending', 'completed', 'failed')),
  created_at timestamptz not null default clock_timestamp(),
  primary key (join_id, message_id)
);

create index if not exists join_members_pending on penstock.join_members (message_id)
  where status = 'pending';

create or replace function penstock.start_join(
  join_id uuid, grouping_key text, expected_steps integer, metadata text default null,
  timeout interval default null)
returns uuid language sql volatile
as $$
  insert into penstock.joins (join_id, grouping_key, expected_steps, metadata, times_out_at)
  values (start_join.join_id, start_join.grouping_key, start_join.expected_steps,
    start_join.metadata, clock_timestamp() + start_join.timeout)
  on conflict (join_id) do nothing
  returning join_id;
  select start_join.join_id
$$;

create or replace function penstock.locked_join(join_id uuid)
returns penstock.joins language plpgsql volatile
as $$
declare
  locked penstock.joins;
begin
  select j.* into locked from penstock.joins j where j.join_id = locked_join.join_id for update;
  if not found then
    raise exception using errcode = 'PS060',
      message = format('there is no join %s', join_id),
      detail = jsonb_build_object('join_id', join_id);
  end if;
  return locked;
end
$$;

-- Count members of joins as done or failed: each once, join by join in the order of their ids. Wakes the
-- wait of a join whose last step this was.
create or replace function penstock.count_in_joins(message_ids uuid[], outcome text)
returns void language plpgsql volatile
as $$
declare
  affected uuid[];
  wanted uuid;
begin
  affected := array(
    select distinct m.join_id from penstock.join_members m
    where m.message_id = any (message_ids) and m.status = 'pending' order by 1);
  foreach wanted in array affected loop
    perform penstock.count_in_join(wanted, message_ids, outcome);
  end loop;
end
$$;

create or replace function penstock.count_in_join(join_id uuid, message_ids uuid[], outcome text)
returns void language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own penstock.joins := penstock.locked_join(join_id);
  counted integer;
begin
  if own.status <> 'pending' then
    return;  -- cancelled or timed out: what its members do counts no more
  end if;
  update penstock.join_members m
  set status = case when outcome = 'done' then 'completed' else 'failed' end
  where m.join_id = own.join_id and m.message_id = any (message_ids) and m.status = 'pending';
  get diagnostics counted = row_count;

  update penstock.joins j
  set completed_steps = j.completed_steps + case when outcome = 'done' then counted else 0 end,
    failed_steps = j.failed_steps + case when outcome = 'done' then 0 else counted end,
    updated_at = clock_timestamp()
  where j.join_id = own.join_id
  returning j.* into own;
  if own.completed_steps + own.failed_steps = own.expected_steps then
    perform penstock.wake_wait(own.wait_id);
  end if;
end
$$;

create or replace function penstock.wake_wait(wait_id uuid)
returns void language sql volatile
as $$
  update penstock.outbox o set due = clock_timestamp()
  where o.id = wake_wait.wait_id and o.state = 'ready' and o.due > clock_timestamp()
$$;

-- Make messages members of a join. One that is finished already counts at once.
create or replace function penstock.attach_to_join(join_id uuid, message_ids uuid[])
returns void language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own penstock.joins;
  new_ids uuid[];
  unknown uuid;
begin
  -- a message that is being finished at this moment is waited for, so that one side counts it
  perform from penstock.outbox o
  where o.id = any (attach_to_join.message_ids) order by o.id for share;
  own := penstock.locked_join(attach_to_join.join_id);
  new_ids := array(
    select distinct i from unnest(attach_to_join.message_ids) i
    where not exists (
      select from penstock.join_members m where m.join_id = own.join_id and m.message_id = i)
    order by 1);
  if new_ids = '{}' then
    return;
  end if;
  if own.status <> 'pending' then
    raise exception using errcode = 'PS061',
      message = format('join %s is %s, and takes no more members', own.join_id, own.status),
      detail = jsonb_build_object('join_id', own.join_id, 'status', own.status);
  end if;
  select i into unknown from unnest(new_ids) i
  where not exists (select from penstock.outbox o where o.id = i) limit 1;
  if found then
    raise exception using errcode = 'PS062',
      message = format('there is no outbox message %s', unknown),
      detail = jsonb_build_object('message_id', unknown);
  end if;
  if (select count(*) from penstock.join_members m where m.join_id = own.join_id)
      + cardinality(new_ids) > own.expected_steps then
    raise exception using errcode = 'PS063',
      message = format('join %s expects %s steps and has them all', own.join_id, own.expected_steps),
      detail = jsonb_build_object('join_id', own.join_id, 'expected_steps', own.expected_steps);
  end if;

  insert into penstock.join_members (join_id, message_id) select own.join_id, unnest(new_ids);
  perform penstock.count_in_join(own.join_id, array(
    select o.id from penstock.outbox o where o.id = any (new_ids) and o.state = 'done'), 'done');
  perform penstock.count_in_join(own.join_id, array(
    select o.id from penstock.outbox o where o.id = any (new_ids) and o.state = 'failed'), 'failed');
end
$$;

-- Report a member's outcome by hand.
create or replace function penstock.report_step(join_id uuid, message_id uuid, outcome text)
returns void language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own constant penstock.joins := penstock.locked_join(report_step.join_id);
begin
  if not exists (
    select from penstock.join_members m
    where m.join_id = own.join_id and m.message_id = report_step.message_id
  ) then
    raise exception using errcode = 'PS064',
      message = format('message %s is no member of join %s', report_step.message_id, own.join_id),
      detail = jsonb_build_object('join_id', own.join_id, 'message_id', report_step.message_id);
  end if;
  perform penstock.count_in_join(own.join_id, array[report_step.message_id], outcome);
end
$$;

-- Enqueue the message that waits for a join: asleep until its last step, or until it times out.
create or replace function penstock.enqueue_join_wait(wait_id uuid, join_id uuid, payload bytea)
returns uuid language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own constant penstock.joins := penstock.locked_join(enqueue_join_wait.join_id);
begin
  if own.wait_id is not null or own.status <> 'pending' then
    raise exception using errcode = 'PS065',
      message = format('join %s is waited for already, or %s', own.join_id, own.status),
      detail = jsonb_build_object('join_id', own.join_id, 'status', own.status);
  end if;
  insert into penstock.outbox (id, topic, payload, encoding, due)
  values (enqueue_join_wait.wait_id, 'join.wait', enqueue_join_wait.payload, 'json',
    case when own.completed_steps + own.failed_steps = own.expected_steps
      then clock_timestamp() else coalesce(own.times_out_at, 'infinity') end);
  update penstock.joins j set wait_id = enqueue_join_wait.wait_id, updated_at = clock_timestamp()
  where j.join_id = own.join_id;
  return enqueue_join_wait.wait_id;
end
$$;

create or replace function penstock.cancel_join(join_id uuid)
returns boolean language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own constant penstock.joins := penstock.locked_join(cancel_join.join_id);
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
-- one transaction. Returns the status; 'pending' if steps are missing, and then the wait sleeps on.
create or replace function penstock.resolve_join(
  wait_id uuid, token uuid, join_id uuid, fail_if_any_step_failed boolean,
  follow_up_id uuid,
  on_complete_topic text, on_complete_payload bytea, on_complete_encoding text,
  on_fail_topic text, on_fail_payload bytea, on_fail_encoding text)
returns text language plpgsql volatile
as $$
#variable_conflict use_column
declare
  own penstock.joins := penstock.locked_join(resolve_join.join_id);
  missing integer;
  outcome text;
  next_topic text;
begin
  perform from penstock.outbox o
  where o.id = resolve_join.wait_id and o.state = 'in_progress' and o.token = resolve_join.token
  for update;
  if not found then
    raise exception using errcode = 'PS066',
      message = format('the wait %s is not held any more', resolve_join.wait_id),
      detail = jsonb_build_object('message_ids', jsonb_build_array(resolve_join.wait_id));
  end if;

  missing := own.expected_steps - own.completed_steps - own.failed_steps;
  if own.status = 'pending' and missing > 0
      and coalesce(own.times_out_at > clock_timestamp(), true) then
    update penstock.outbox o
    set state = 'ready', token = null, lease_until = null, attempts = o.attempts - 1,
      due = coalesce(own.times_out_at, 'infinity')
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
  set state = 'done', token = null, lease_until = null, finished_at = clock_timestamp()
  where o.id = resolve_join.wait_id;
  return coalesce(outcome, own.status);
end
$$;
