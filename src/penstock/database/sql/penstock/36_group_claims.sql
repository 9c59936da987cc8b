-- Claims: a worker claims a partition with its messages and a guard, and acknowledges or releases it.
--
-- A claim has a token and a lease. Only its token can extend, acknowledge or release it. When the lease has
-- ended, another worker can claim the partition. A call that is repeated because its answer was lost is
-- recognised by its token, until a later claim on the partition is acknowledged or released.

-- Claim the first partition in the queue. The rows are its messages, the first with the claim itself; no row
-- means that there is nothing to do. An archived message is a row without an id: see
-- 24_archived_attributes.sql. `low` and `seen` make the guard, see 31_boundaries.sql. `claim_order`
-- decides where the partition returns to the queue: 'oldest' by its first unhandled message, 'round_robin'
-- after all that are ready.
create or replace function penstock.claim_next(
  group_id text,
  partition_by text[],
  handled_types text[],
  worker_id text,
  batch_size integer default 100,
  lease interval default '30 seconds',
  claim_order text default 'oldest'
)
returns table (
  claim jsonb,
  id varchar, stream_name varchar, type varchar, "position" bigint, global_position bigint,
  data varchar, metadata varchar, "time" timestamp
)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  names text[] := claim_next.partition_by;
  named_types constant text[] := array(
    select distinct t collate "C" from unnest(claim_next.handled_types) t order by 1);
  moment constant timestamptz := clock_timestamp();
  poll record;
  own penstock.consumer_groups;
  progress penstock.group_progress;
  claim_cursor penstock.claim_cursors;
  type_ids integer[];
  only_ids integer[];                      -- the same, if the group handles more types; else null
  more boolean;
  chosen penstock.partitions;
  state penstock.partition_states;
  claimed penstock.partition_states;
  positions bigint[];
  replaying boolean;
  low bigint;
  boundary jsonb;
  done text;
begin
  -- an idle worker runs this statement and no more: nothing to route, nothing to claim
  select g as own, a as progress,
    a.caught_up_at <> coalesce(
      pg_sequence_last_value('message_store.messages_global_position_seq'::regclass),
      penstock.last_position())
    or exists (
      select from penstock.partition_states s
      where s.group_pk = g.id and s.queue_position is not null
        and (s.queue_position, s.version) >= (f.queue_position, f.version))
    or exists (
      select from penstock.partition_states s
      where s.group_pk = g.id and s.due is not null and s.due >= f.due
        and s.due <= moment)
    or exists (
      select from penstock.uncovered_states(f) s
      where s.queue_position is not null or s.due <= moment) as may_have_work
  into poll
  from penstock.consumer_groups g
  cross join lateral penstock.latest_group_progress(g.id) a
  cross join lateral penstock.latest_claim_cursor(
    g.id, case when g.handled_types = named_types then '{}'::text[] else named_types end) f
  where g.group_id = claim_next.group_id and g.status = 'active' and g.partition_by = names
    and (g.handled_types = named_types or g.narrowed and g.handled_types @> named_types)
    and current_setting('transaction_isolation') like 'read %';
  if not poll.may_have_work then  -- null: the claim names other types or attributes, or the group is stopped
    return;
  end if;

  if poll.may_have_work then
    own := poll.own;
    progress := poll.progress;
  else
    own := penstock.find_group(claim_next.group_id);
    if own.status <> 'active' then
      return;
    end if;
  end if;
  done := penstock.refuse_old_snapshot();
  if claim_order is null or claim_order not in ('oldest', 'round_robin') then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('claim_order is %L, not oldest or round_robin', claim_order);
  end if;
  type_ids := penstock.indexed_types(claim_next.handled_types);
  if poll.may_have_work is null then
    names := array(select distinct n collate "C" from unnest(names) n order by 1);
    if own.partition_by @> names and names @> own.partition_by then
      names := own.partition_by;  -- the same, in the group's order
    end if;
    if own.partition_by is distinct from names or not own.handled_types @> named_types then
      own := penstock.configure_group(own, names, named_types);
    elsif own.handled_types <> named_types and not own.narrowed then
      own := penstock.mark_narrowed(own);
    end if;
    select p.* into progress from penstock.latest_group_progress(own.id) p;
  end if;
  if own.handled_types <> named_types then
    only_ids := type_ids;
  end if;

  for round in 1 .. 10 loop  -- route more, if what was routed is not for this worker
    more := false;
    if progress.caught_up_at <> penstock.last_position() then
      more := penstock.route(own);
    end if;
    if more or round > 1 or progress.caught_up_at <> penstock.last_position() then
      select p.* into progress from penstock.latest_group_progress(own.id) p;
      exit when not found;  -- the group was removed
    end if;
    -- while a new type is being routed, it is not known yet which message is the first
    if progress.backfills = '{}' or not exists (
      select from penstock.group_types g
      where g.group_pk = own.id and g.handled and progress.backfills ? g.type_id::text
    ) then
      select f.* into claim_cursor from penstock.latest_claim_cursor(
        own.id, case when only_ids is null then '{}'::text[] else named_types end) f;
      done := penstock.expire_leases(own, claim_cursor, progress.routed_to);
      chosen := penstock.lock_next_partition(own, claim_cursor, only_ids, progress.routed_to);
      if chosen.offset_id is not null then
        select s.* into state from penstock.latest_partition_state(chosen.offset_id) s;
        if only_ids is null then
          positions := array(select penstock.pending_positions(
            own, chosen, state.last_position, progress.routed_to, batch_size));
        else
          positions := array(select penstock.pending_positions_of(
            only_ids, own, chosen, state.last_position, progress.routed_to, batch_size));
        end if;
        exit when state.queue_position is not null and positions <> '{}';
        done := penstock.update_next_positions(own, array[chosen.offset_id], 0);
        more := true;  -- another worker claimed it, or its messages were removed
      end if;
    end if;
    positions := null;
    exit when not more;
  end loop;
  if positions is null then
    if claim_cursor.group_pk is not null and (own.narrowed or only_ids is null) then
      done := penstock.refresh_claim_cursors(
        own, claim_cursor, only_ids, progress.routed_to, progress.routed_to + 1, 0);
    end if;
    return;
  end if;

  -- messages that were handled before a reset are claimed separately from the others
  replaying := positions[1] <= chosen.replaying_to;
  if replaying then
    positions := array(select p from unnest(positions) p where p <= chosen.replaying_to order by p);
  end if;
  claimed := state;
  claimed.queue_position := null;
  claimed.due := clock_timestamp() + lease;
  claimed.token := gen_random_uuid();
  claimed.claimed_by := worker_id;
  claimed.claimed_at := clock_timestamp();
  claimed.claimed_types := claim_cursor.types;
  claimed.claim_order := claim_next.claim_order;
  claimed.attempts := state.attempts + 1;
  done := penstock.replace_partition_state(state, claimed);
  if own.narrowed or only_ids is null then
    done := penstock.refresh_claim_cursors(
      own, claim_cursor, only_ids, progress.routed_to, state.queue_position, state.version);
  end if;

  boundary := penstock.partition_conditions(
    names, chosen.partition_values, claim_next.handled_types);
  low := penstock.claimed_low(progress);
  claim := jsonb_build_object(
    'offset_id', chosen.offset_id,
    'key_pair_ids', array(
      select penstock.key_pair(a.name, a.value)
      from unnest(names, chosen.partition_values) with ordinality as a(name, value, number)
      order by a.number),
    'partition_key', chosen.partition_key,
    'partition_by', names,
    'partition_values', chosen.partition_values,
    'token', claimed.token,
    'replaying', replaying,
    'attempts', claimed.attempts,
    'conditions', boundary,
    'low', low,
    'seen', array(select s.position from penstock.matching_positions(boundary, low) s(position)));
  return query
    select case row_number() over (order by m.global_position) when 1 then claim end,
      m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
      m.data::varchar, m.metadata::varchar, m.time
    from penstock.indexed_messages m
    where m.global_position = any (positions)
    order by m.global_position;
end
$$;

-- The ids of these types; refused unless all of them are declared and indexed.
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

-- A claim's `low`, see 31_boundaries.sql. Where the group has routed everything, `routed_to` was a watermark,
-- and the announcements need not be read again.
create or replace function penstock.claimed_low(progress penstock.group_progress)
returns bigint language plpgsql volatile
as $$
begin
  if progress.caught_up_at <> penstock.last_position() then
    return penstock.complete_to();
  end if;
  return penstock.last_message_until(progress.routed_to);
end
$$;

-- The boundary of a partition: for each type, those of the partition's attributes that it declares.
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

-- Acknowledge the messages of a claimed partition up to a position, and end the claim.
create or replace function penstock.ack(
  group_id text, offset_id bigint, "position" bigint, token uuid)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
  call constant text := format('ack %s', position);
  held constant penstock.partition_states := penstock.locked_claim(own, offset_id, token, call);
  routed_to bigint;
begin
  if held.offset_id is null then
    return;
  end if;
  select p.routed_to into routed_to from penstock.latest_group_progress(own.id) p;
  if ack.position <= held.last_position or ack.position > routed_to then
    raise exception using errcode = 'PS047',
      message = format('cannot acknowledge position %s: it must be after %s and at most %s',
        ack.position, held.last_position, routed_to),
      detail = jsonb_build_object('group_id', group_id, 'position', ack.position,
        'last_position', held.last_position);
  end if;
  perform penstock.release_claim(own, held, call, ack.position, routed_to, 0, '0', null, false);
end
$$;

-- Release a claimed partition with nothing acknowledged: at once, after a delay, or parked until it is
-- resumed. An attempt without an error does not count.
create or replace function penstock.release(
  group_id text, offset_id bigint, token uuid,
  delay interval default '0', error text default null, park boolean default false)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
  call constant text := format('release %s %s %s', delay, park, md5(error));
  held constant penstock.partition_states := penstock.locked_claim(own, offset_id, token, call);
  routed_to bigint;
begin
  if held.offset_id is null then
    return;
  end if;
  select p.routed_to into routed_to from penstock.latest_group_progress(own.id) p;
  perform penstock.release_claim(own, held, call, held.last_position, routed_to,
    case when error is null then greatest(held.attempts - 1, 0) else held.attempts end,
    delay, error, park);
end
$$;

-- Extend a claim by another lease.
create or replace function penstock.extend(
  group_id text, offset_id bigint, token uuid, lease interval)
returns void language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
  held constant penstock.partition_states := penstock.locked_claim(own, offset_id, token);
  extended penstock.partition_states := held;
  claim_cursor penstock.claim_cursors;
  type_ids integer[];
  routed_to bigint;
begin
  extended.queue_position := null;
  extended.due := clock_timestamp() + lease;
  perform penstock.replace_partition_state(held, extended);
  if held.claimed_types <> '{}' and not own.narrowed then
    return;
  end if;

  select f.* into claim_cursor from penstock.latest_claim_cursor(own.id, held.claimed_types) f;
  select p.routed_to into routed_to from penstock.latest_group_progress(own.id) p;
  if held.claimed_types <> '{}' then
    type_ids := array(
      select t.id from penstock.message_types t where t.type = any (held.claimed_types));
  end if;
  perform penstock.refresh_claim_cursors(own, claim_cursor, type_ids, routed_to);
end
$$;

-- Lock a claimed partition for the holder of a token, and return its state. Null if this call was made
-- before, and its answer was lost. Refused if the token is not the current one, and in an old snapshot:
-- callers find the partition's next message under the lock.
create or replace function penstock.locked_claim(
  own penstock.consumer_groups, offset_id bigint, token uuid, call text default null)
returns penstock.partition_states language plpgsql volatile
as $$
declare
  held penstock.partition_states;
begin
  perform penstock.refuse_old_snapshot();
  perform from penstock.partitions p
  where p.offset_id = locked_claim.offset_id and p.group_pk = own.id
  for update;
  if found then
    select s.* into held from penstock.latest_partition_state(locked_claim.offset_id) s;
    if held.token = locked_claim.token then
      return held;
    elsif held.finished_token = locked_claim.token and held.finished_call = call then
      return null;
    end if;
  end if;
  raise exception using errcode = 'PS045',
    message = format('the claim on partition %s of group %s has ended: its token is not the current one',
      offset_id, own.group_id),
    detail = jsonb_build_object('group_id', own.group_id, 'offset_id', offset_id);
end
$$;

-- End a claim on a partition that is handled up to a position. The partition is parked, or can be claimed
-- again after a delay or at once.
create or replace function penstock.release_claim(
  own penstock.consumer_groups, held penstock.partition_states, call text, handled_to bigint,
  routed_to bigint, attempts integer, delay interval, error text, park boolean)
returns void language plpgsql volatile
as $$
declare
  returned penstock.partition_states := held;
begin
  select penstock.next_in_feeds(own.id, own.partition_by, p.partition_values, p.feeds, handled_to)
  into returned.next_position
  from penstock.partitions p where p.offset_id = held.offset_id;
  returned.last_position := handled_to;
  returned.queue_position := null;
  returned.due := null;
  returned.parked_at := null;
  if park then
    returned.parked_at := clock_timestamp();
  elsif delay > '0' and returned.next_position is not null then
    returned.due := clock_timestamp() + delay;
  else
    returned.queue_position := penstock.queue_position(held.claim_order, returned.next_position, routed_to);
  end if;
  returned.token := null;
  returned.claimed_by := null;
  returned.claimed_at := null;
  returned.attempts := release_claim.attempts;
  returned.error := release_claim.error;
  returned.finished_token := held.token;
  returned.finished_call := call;
  perform penstock.replace_partition_state(held, returned);
end
$$;

-- Resume parked partitions of a group: one, or all. Returns how many.
create or replace function penstock.resume_partitions(group_id text, partition_key text default null)
returns bigint language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
  resumed bigint[];
  routed_to bigint;
begin
  perform penstock.refuse_old_snapshot();
  resumed := array(
    select p.offset_id
    from penstock.partition_states s join penstock.partitions p on p.offset_id = s.offset_id
    where s.group_pk = own.id and s.parked_at is not null
      and (resume_partitions.partition_key is null
        or p.partition_key = resume_partitions.partition_key)
    order by p.offset_id
    for update of p);
  resumed := array(  -- under the locks
    select o.offset_id from unnest(resumed) as o(offset_id)
    cross join lateral penstock.latest_partition_state(o.offset_id) s
    where s.parked_at is not null);
  select p.routed_to into routed_to from penstock.latest_group_progress(own.id) p;
  perform penstock.make_ready(own, resumed, routed_to);
  return cardinality(resumed);
end
$$;
