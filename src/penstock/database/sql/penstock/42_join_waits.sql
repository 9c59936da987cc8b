-- Waits for joins: a follow-up message that is enqueued when a join is complete, has failed or times out.
--
-- A wait is an outbox message with the topic join.wait. It sleeps until the last step of its join is counted,
-- or until the join times out. Resolving it sets the join's status, enqueues the follow-up and finishes the
-- wait in one transaction, once. A wait can be a step of another join, but not in a cycle.

-- One row, whose version rises when a wait is attached to a join that has a wait (see `refuse_cycle`).
create table if not exists penstock.join_nesting (version bigint primary key);
insert into penstock.join_nesting select 0
where not exists (select from penstock.join_nesting);

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

create or replace function penstock.wake_wait(wait_id uuid)
returns void language plpgsql volatile
as $$
begin
  update penstock.outbox o set due = clock_timestamp()
  where o.id = wake_wait.wait_id and o.state = 'ready'
    and (o.due is null or o.due > clock_timestamp());
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

-- These look up rows by index. The planner may prefer a plan without one for a table that is small, or was
-- when its statistics were gathered; but a session caches its plans while the table grows. With one plan left
-- to choose, there is no need to make it anew for each call, which took a quarter of a claim at rest.
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
      ' set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off'
      ' set plan_cache_mode = force_generic_plan', one);
  end loop;
end
$$;
