-- Consistency boundaries: what a decision is based on, and whether it is still current.
--
-- A boundary is a list of conditions, one for each message type that matters:
--   [{"type": "user.joined_course", "attributes": {"course_name": ["Algebra"], "user_id": ["joe"]}}]
-- A message matches a condition of its type if it carries at least one of the attributes, and each of
-- them that it carries has one of the values. A condition without attributes matches every message of
-- its type. This rule is written once, in penstock.matching_positions; reads and checks use it.
--
-- A guard is a boundary, a position `low` and a multirange `seen`: the reader saw every matching message
-- at or below `low`, the watermark of that read, and those within `seen` above it. As JSON:
--   {"conditions": [...], "low": 40, "seen": "{[42,44],[50,50]}"}
-- The positions of a bulk append are consecutive, so they are one range, or few.
--
-- The promise: a guarded append commits only if no matching message was written since. How it is kept:
-- a writer holds a shared lock on each key of its messages until it commits, and a guard takes exclusive
-- locks on the keys of its conditions. So under its locks a guard sees every matching message, and no other
-- can be written until it has committed. A guard locks every attribute it names, since a message may
-- match by any one of them. A bulk write locks the table boundary_gate in place of its many keys. A guard
-- of very many keys locks the keys of its conditions' types instead, which every writer of a type shares.

create table if not exists penstock.boundary_gate ();

create or replace function penstock.carries(data jsonb, wanted jsonb)
returns boolean language sql immutable parallel safe
as $$
  select not exists (
    select from jsonb_each(wanted) as w(name, values)
    where data ->> w.name is not null and not w.values ? (data ->> w.name)
  )
$$;

-- The keys under which messages that match a condition are indexed, with the attribute of each; one
-- without attributes has the key of its type, under the empty name.
create or replace function penstock.watched_keys(condition jsonb)
returns table (name text, key_pair bigint) language sql immutable parallel safe
as $$
  select v.name, penstock.key_pair(v.name, v.value)
  from (
    select (a.attribute).key as name, jsonb_array_elements_text((a.attribute).value) as value
    from (
      select jsonb_each(case condition -> 'attributes'
        when '{}' then jsonb_build_object('', jsonb_build_array(condition -> 'type'))
        else condition -> 'attributes' end) as attribute
    ) a
  ) v
$$;

-- The ranges in which a guard has not seen all messages: the gaps of `seen` after `low`. With too many gaps
-- to probe each under so many keys, it is everything after `low`.
create or replace function penstock.unseen_ranges(low bigint, seen int8multirange, key_count integer)
returns int8multirange language plpgsql immutable parallel safe
as $$
declare
  after_low constant int8multirange := int8multirange(int8range(low, null, '()'));
begin
  if isempty(seen) then
    return after_low;
  elsif (select count(*) from unnest(seen)) * key_count > 1000 then
    return after_low;
  else
    return after_low - seen;
  end if;
end
$$;

-- Whether the index has a message under these keys, of these types, that a guard has not seen; or messages of
-- these types were removed that it may not have seen. (One statement: a message is in the index, or was
-- removed.)
create or replace function penstock.has_unseen(
  keys bigint[], type_ids integer[], low bigint, seen int8multirange)
returns boolean language plpgsql volatile
as $$
begin
  return exists (
    select from unnest(penstock.unseen_ranges(low, seen, cardinality(keys))) as r(range)
    cross join lateral (
      select from penstock.message_attributes a
      where a.key_pair = any (keys) and a.type_id = any (type_ids)
        and a.global_position >= lower(r.range)
        and a.global_position < coalesce(upper(r.range), 9223372036854775807)
        and not seen @> a.global_position
      limit 1
    ) a)
    or exists (
      select from penstock.message_attributes a
      where a.key_pair = penstock.removal_key() and a.type_id = any (type_ids)
        and a.global_position > low);
end
$$;

-- The positions of the messages after a position, and not within `seen`, that match one of the conditions.
-- `offset 0` keeps the planner to this join order, each step along an index: it estimates every list at a
-- thousand rows, and without statistics would read the whole log.
create or replace function penstock.matching_positions(
  conditions jsonb, after bigint, seen int8multirange default '{}')
returns setof bigint language plpgsql stable
as $$
declare
  ranges constant int8multirange := penstock.unseen_ranges(after, seen, (
    select count(*)::integer from jsonb_array_elements(conditions) as c(condition)
    cross join lateral penstock.watched_keys(c.condition) k));
begin
  return query
    select distinct m.global_position
    from jsonb_array_elements(conditions) as c(condition)
    cross join lateral (
      select t.id, t.type from penstock.message_types t
      where t.type = c.condition ->> 'type' offset 0
    ) t
    cross join lateral penstock.watched_keys(c.condition) k
    cross join lateral unnest(ranges) as r(range)
    cross join lateral (
      select a.global_position from penstock.message_attributes a
      where a.key_pair = k.key_pair and a.type_id = t.id
        and a.global_position >= lower(r.range)
        and a.global_position < coalesce(upper(r.range), 9223372036854775807) offset 0
    ) i
    cross join lateral (
      select m.global_position, m.data from penstock.indexed_messages m
      where m.global_position = i.global_position and m.type = t.type limit 1 offset 0
    ) m
    where not seen @> i.global_position and penstock.carries(m.data, c.condition -> 'attributes')
    order by m.global_position;
end
$$;

-- Refuse conditions on types or attributes that are not declared, or not filled in yet.
create or replace function penstock.check_conditions(conditions jsonb)
returns void language plpgsql stable
as $$
declare
  wrong record;
begin
  select c.condition ->> 'type' as type, t.type is null as unknown, t.filled_to is not null as filling,
    array(
      select a.name from jsonb_object_keys(c.condition -> 'attributes') as a(name)
      where not a.name = any (t.attributes)) as undeclared
  into wrong
  from jsonb_array_elements(conditions) as c(condition)
  left join penstock.message_types t on t.type = c.condition ->> 'type'
  where t.type is null or t.filled_to is not null
    or exists (
      select from jsonb_object_keys(c.condition -> 'attributes') as a(name)
      where not a.name = any (t.attributes))
  limit 1;
  if not found then
    return;
  end if;

  if wrong.unknown then
    raise exception using errcode = 'PS040',
      message = format('message type %s declares no attributes', wrong.type),
      detail = jsonb_build_object('type', wrong.type);
  elsif wrong.filling then
    raise exception using errcode = 'PS041',
      message = format('the attributes of message type %s are still being indexed', wrong.type),
      detail = jsonb_build_object('type', wrong.type);
  else
    raise exception using errcode = 'PS042',
      message = format('message type %s does not declare %s', wrong.type, wrong.undeclared),
      detail = jsonb_build_object('type', wrong.type, 'attributes', wrong.undeclared);
  end if;
end
$$;

create or replace function penstock.refuse_old_snapshot()
returns void language plpgsql
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'PS003',
      message = format('a guard cannot be checked in a %s transaction, which reads an old snapshot',
        current_setting('transaction_isolation'));
  end if;
end
$$;

-- The position of the last message at or below the watermark, archived or not: a guard's `low`. Not the
-- watermark itself, since a guard leaves the database, and after a crash the sequence may repeat unlogged
-- positions.
create or replace function penstock.complete_to()
returns bigint language plpgsql volatile
as $$
declare
  watermark constant bigint := penstock.watermark();
begin
  return penstock.last_message_until(watermark);
end
$$;

-- The position of the last message at or below a position, also if it was removed or archived: a guard with a lower `low`
-- could not be used while the watermark is held back.
create or replace function penstock.last_message_until("position" bigint)
returns bigint language plpgsql volatile
as $$
begin
  return coalesce(greatest(
    (select m.global_position from message_store.messages m
     where m.global_position <= last_message_until.position order by m.global_position desc limit 1),
    (select a.global_position from penstock.message_attributes a
     where a.key_pair = penstock.removal_key() and a.type_id = 0
       and a.global_position <= last_message_until.position
     order by a.key_pair desc, a.type_id desc, a.global_position desc limit 1),
    (select s.highest_position from penstock.archive_segments s
     where s.highest_position <= last_message_until.position
     order by s.highest_position desc limit 1)), 0);
end
$$;

-- Read the messages that match, after a position, and the guard. Unlike other reads this one is
-- not bounded by the watermark: a decision is based on all that is visible. The first row carries the
-- guard's `low` and `seen`; there is always one. An archived message is a row without an id: see
-- 24_archived_attributes.sql.
create or replace function penstock.read_boundary(
  conditions jsonb, after bigint default 0, most bigint default null)
returns table (
  low bigint, seen bigint[],
  id varchar, stream_name varchar, type varchar, "position" bigint, global_position bigint,
  data varchar, metadata varchar, "time" timestamp
)
language plpgsql volatile
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  complete_to bigint;
begin
  perform penstock.refuse_old_snapshot();
  perform penstock.check_conditions(conditions);
  complete_to := penstock.complete_to();

  return query
    with matching as materialized (
      select p.position
      from penstock.matching_positions(conditions, least(after, complete_to)) p(position)
    ), fetched as (
      select m.*
      from (
        select p.position from matching p where p.position > after order by 1 limit most
      ) p
      cross join lateral (
        select m.* from penstock.indexed_messages m
        where m.global_position = p.position limit 1 offset 0
      ) m
    )
    select complete_to,
      case row_number() over (order by f.global_position) when 1 then
        array(select p.position from matching p where p.position > complete_to order by 1) end,
      f.id::varchar, f.stream_name::varchar, f.type::varchar, f.position, f.global_position,
      f.data::varchar, f.metadata::varchar, f.time
    from (values (1)) as one
    left join fetched f on true
    order by f.global_position;
end
$$;

-- Why a guard does not hold: a matching message that was written since it was made, or messages of its types
-- that were removed, which may have been such. Null if it holds. Call it under the locks, in a separate
-- statement.
create or replace function penstock.guard_conflict(guard jsonb)
returns jsonb language plpgsql volatile
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
  conflict jsonb;
begin
  select jsonb_build_object('code', 'PS043', 'type', m.type, 'position', m.global_position) into conflict
  from penstock.matching_positions(guard -> 'conditions', (guard ->> 'low')::bigint,
    (guard ->> 'seen')::int8multirange) p(position)
  cross join lateral (
    select m.global_position, m.type from penstock.indexed_messages m
    where m.global_position = p.position limit 1 offset 0
  ) m
  order by m.global_position limit 1;
  if found then
    return conflict;
  end if;

  select jsonb_build_object('code', 'PS049', 'type', t.type, 'position', r.global_position) into conflict
  from jsonb_array_elements(guard -> 'conditions') as c(condition)
  join penstock.message_types t on t.type = c.condition ->> 'type'
  cross join lateral (
    select a.global_position from penstock.message_attributes a
    where a.key_pair = penstock.removal_key() and a.type_id = t.id
      and a.global_position > (guard ->> 'low')::bigint
    order by a.global_position desc limit 1
  ) r
  limit 1;
  return conflict;
end
$$;

create or replace function penstock.check_guard(guard jsonb)
returns void language plpgsql volatile
as $$
declare
  conflict constant jsonb := penstock.guard_conflict(guard);
begin
  if conflict ->> 'code' = 'PS043' then
    raise exception using errcode = 'PS043',
      message = format('a message of type %s was written at %s since the guard was made',
        conflict ->> 'type', conflict ->> 'position'),
      detail = conflict - 'code';
  elsif conflict ->> 'code' = 'PS049' then
    raise exception using errcode = 'PS049',
      message = format('messages of type %s up to %s were removed since the guard was made',
        conflict ->> 'type', conflict ->> 'position'),
      detail = conflict - 'code';
  end if;
end
$$;

-- The `low` that a guard may have once messages were appended at `positions`: complete_to(), if the guard has
-- seen all that matches up to there, else null. So `seen` does not grow without end.
create or replace function penstock.advanced_low(guard jsonb, positions bigint[])
returns bigint language plpgsql volatile strict
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
  complete_to constant bigint := penstock.complete_to();
  appended constant int8multirange := (
    select range_agg(int8range(p, p, '[]')) from unnest(positions) p);
begin
  if exists (
    select from penstock.matching_positions(guard -> 'conditions', (guard ->> 'low')::bigint,
      (guard ->> 'seen')::int8multirange + appended) p(position)
    where p.position <= complete_to
  ) then
    return null;
  end if;
  return complete_to;
end
$$;

-- For the trigger: take the shared locks on the keys of rows that were just written. It runs after the insert,
-- and may have to wait for a guarded append: that one does not see these rows, and commits before them.
create or replace function penstock.share_boundaries(keys bigint[])
returns void language plpgsql volatile
as $$
declare
  key bigint;
  done text;
begin
  if penstock.held_locks() + cardinality(keys) >= 500 then
    lock table penstock.boundary_gate in share mode;
    return;
  end if;
  foreach key in array keys loop
    done := pg_advisory_xact_lock_shared(key);
  end loop;
  done := set_config('penstock.locks',
    (penstock.counted_locks() + cardinality(keys))::text, true);
end
$$;

-- The keys of all conditions of a boundary.
create or replace function penstock.boundary_keys(conditions jsonb)
returns bigint[] language sql immutable parallel safe
as $$
  select coalesce(array_agg(k.key_pair), '{}')
  from jsonb_array_elements(conditions) as c(condition)
  cross join lateral penstock.watched_keys(c.condition) k
$$;

-- Take a guard's locks. As the first statement of a transaction, it keeps a later append from failing.
create or replace function penstock.lock_guard(conditions jsonb)
returns void language plpgsql volatile
as $$
begin
  perform penstock.refuse_old_snapshot();
  perform penstock.check_conditions(conditions);
  perform penstock.lock_for_append(
    null, '{}', penstock.boundary_keys(conditions), '{}', false, conditions);
end
$$;
