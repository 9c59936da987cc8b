-- Append messages, with or without a guard. A single message is appended by penstock.append_one, on a
-- shorter path.
--
-- Without a stream name each message gets a stream of its own, {type}-{id}: its category is its type,
-- and nothing contends. All or none, and a retry with the same ids returns the first result.
--
-- The order: all locks; ids that exist already; the expected version; the guard; the insert. In the usual
-- case, two of them cost almost nothing. Ids are looked up only where the append would fail otherwise: a
-- guard or an expected version does not hold, or the insert leaves messages out. And where the attribute
-- index has nothing new under the guard's keys, no message can match, and none is read.
--
-- The main cost is the start of each statement, node by node of its plan: so there are few, with generic
-- plans. The keys of the messages are computed once, for the locks and for the index.

create or replace function penstock.append(
  stream_name varchar,
  ids uuid[],
  types text[],
  data text[],
  metadata text[],
  expected_version bigint default null,
  guard jsonb default null,
  whole_categories boolean default false   -- on a genuine Message DB, whose readers need it
)
returns bigint[] language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  documents constant jsonb[] := append.data::jsonb[];
  outer_append constant text := current_setting('penstock.appending', true);  -- whose trigger calls this
  stream_version bigint := -1;
  watched bigint[] := '{}';                -- the keys of the guard's conditions, and their types
  watched_types integer[];
  checkable boolean;
  unseen boolean := false;
  keys bigint[];                           -- the keys of the messages, with type and number of each
  type_ids integer[];
  numbers bigint[];
  different_keys bigint[];
  positions bigint[];
  done text;
begin
  lock table message_store.messages in row exclusive mode;  -- no type is declared from here on
  if guard is not null then
    select coalesce(array_agg(k.key_pair), '{}'), array_agg(t.id),
      bool_and(t.id is not null and t.filled_to is null and (k.name = '' or k.name = any (t.attributes))
        and current_setting('transaction_isolation') like 'read %')
    into watched, watched_types, checkable
    from jsonb_array_elements(guard -> 'conditions') as c(condition)
    left join lateral (
      select t.id, t.attributes, t.filled_to from penstock.message_types t
      where t.type = c.condition ->> 'type' offset 0
    ) t on true
    cross join lateral penstock.watched_keys(c.condition) k;
    if checkable is not true then
      done := penstock.refuse_old_snapshot();
      done := penstock.check_conditions(guard -> 'conditions');
    end if;
  end if;
  select array_agg(k.type_id), array_agg(k.key), array_agg(k.number), array_agg(distinct k.key)
  into type_ids, keys, numbers, different_keys
  from (
    select distinct t.id as type_id, k.key, m.number  -- two attributes may share a key
    from unnest(append.types, documents) with ordinality as m(type, data, number)
    join penstock.message_types t on t.type = m.type
    cross join lateral penstock.key_pairs(t.type, t.attributes, m.data) as k(key)
  ) k;

  done := penstock.lock_for_append(append.stream_name, append.types, watched,
    coalesce(different_keys, '{}'), whole_categories, guard -> 'conditions');

  if append.stream_name is not null then
    stream_version := coalesce(message_store.stream_version(append.stream_name), -1);
  end if;
  if guard is not null then
    unseen := penstock.has_unseen(watched, watched_types,
      (guard ->> 'low')::bigint, (guard ->> 'seen')::int8multirange);
  end if;
  if unseen or append.expected_version <> stream_version then
    positions := penstock.appended_before(append.stream_name, append.ids, append.types);
    if positions is not null then
      return positions;
    end if;
    done := penstock.check_version(append.stream_name, append.expected_version, stream_version);
    done := penstock.check_guard(guard);
  end if;

  done := set_config('penstock.appending', (pg_trigger_depth() + 1)::text, true);
  with new as (
    insert into message_store.messages (id, stream_name, position, type, data, metadata)
    select m.id, coalesce(append.stream_name, m.type || '-' || m.id),
      case when append.stream_name is null then 0 else stream_version + m.number end,
      m.type, m.data, m.metadata::jsonb
    from unnest(append.ids, append.types, documents, append.metadata)
      with ordinality as m(id, type, data, metadata, number)
    on conflict (id) do nothing
    returning global_position
  )
  select array_agg(n.global_position) into positions from new n;
  done := set_config('penstock.appending', coalesce(outer_append, ''), true);

  if positions is null then
    return penstock.appended_before(append.stream_name, append.ids, append.types);
  elsif cardinality(positions) < cardinality(append.ids) then
    done := penstock.refuse_partial_batch(append.ids, positions);
  elsif positions[1] <= (guard ->> 'low')::bigint then  -- the guard is from before a TRUNCATE
    done := penstock.refuse_beyond_end((guard ->> 'low')::bigint, positions[1] - 1);
  end if;
  insert into penstock.message_attributes (key_pair, type_id, global_position)
  select unnest(keys), unnest(type_ids), positions[unnest(numbers)];
  return positions;
end
$$;

create or replace function penstock.check_version(
  stream_name varchar, expected_version bigint, stream_version bigint)
returns void language plpgsql
as $$
begin
  if expected_version <> stream_version then
    raise exception using errcode = 'PS001',
      message = format('Wrong expected version: %s (Stream: %s, Stream Version: %s)',
        expected_version, stream_name, stream_version),
      detail = jsonb_build_object('stream_name', stream_name,
        'expected', expected_version, 'actual', stream_version);
  end if;
end
$$;

-- Refuse a batch of which some messages were in the log before; the others have these positions.
create or replace function penstock.refuse_partial_batch(ids uuid[], positions bigint[])
returns void language plpgsql
as $$
declare
  present record;
begin
  select m.id, m.stream_name into present
  from message_store.messages m
  where m.id = any (ids) and m.global_position <> all (positions) limit 1;
  raise exception using errcode = 'PS002',
    message = format('message %s exists already, in stream %s, and others of this batch do not',
      present.id, present.stream_name),
    detail = jsonb_build_object('id', present.id, 'stream_name', present.stream_name);
end
$$;

-- The positions of these messages if all are in the log, in the streams that an append would have chosen;
-- null if none is. Anything else is refused.
create or replace function penstock.appended_before(stream_name varchar, ids uuid[], types text[])
returns bigint[] language plpgsql
as $$
declare
  present record;
begin
  select count(*) as count, array_agg(m.global_position order by i.ordinality) as positions,
    count(*) filter (
      where m.stream_name = coalesce(appended_before.stream_name, i.type || '-' || i.id)
    ) as in_place,
    (array_agg(m.id order by i.ordinality))[1] as id,
    (array_agg(m.stream_name order by i.ordinality))[1] as stream_name
  into present
  from unnest(appended_before.ids, types) with ordinality as i(id, type, ordinality)
  join message_store.messages m on m.id = i.id;

  if present.count > 0 and present.in_place < cardinality(ids) then
    raise exception using errcode = 'PS002',
      message = format('message %s exists already, in stream %s, and others of this batch do not',
        present.id, present.stream_name),
      detail = jsonb_build_object('id', present.id, 'stream_name', present.stream_name);
  end if;
  return present.positions;
end
$$;

-- Take all locks of an append: its categories or its stream, and then the boundary keys in their order, in
-- exclusive mode those that a guard watches. `shared` has each key once, in order.
--
-- A transaction that would hold 500 keys or more takes coarser locks: boundary_gate in place of the shared
-- keys, and the keys of the conditions' types in place of the exclusive ones. Every writer of a message holds
-- a shared lock on the key of its type besides those of its attributes, or on boundary_gate.
create or replace function penstock.lock_for_append(
  stream_name varchar, types text[], exclusive bigint[], shared bigint[], whole_categories boolean,
  conditions jsonb default null)
returns void language plpgsql
as $$
declare
  held integer := penstock.counted_locks();
  nothing_locked constant boolean := held = 0;
  gate boolean := cardinality(types) >= 500;
  wanted bigint[];
  key bigint;
  done text;
begin
  if stream_name is not null and whole_categories then
    done := message_store.acquire_lock(stream_name);
  elsif stream_name is not null then
    done := penstock.lock_stream(stream_name);
    held := penstock.counted_locks();
  elsif whole_categories or (gate and nothing_locked) then
    done := penstock.lock_categories(array(
      select distinct message_store.category(t) from unnest(types) t));
  elsif types[1] = all (types) then  -- the usual case
    done := pg_advisory_xact_lock_shared(message_store.hash_64(message_store.category(types[1])));
  else
    foreach key in array array(
      select message_store.hash_64(c.category) as key
      from (select distinct message_store.category(t) from unnest(types) t) as c(category)
      order by key)
    loop
      done := pg_advisory_xact_lock_shared(key);
    end loop;
  end if;

  if held + cardinality(exclusive) >= 500 then
    held := penstock.held_locks();
    exclusive := array(select distinct k from unnest(exclusive) k);
    if held + cardinality(exclusive) >= 500 then
      exclusive := array(
        select distinct penstock.key_pair('', c.condition ->> 'type')
        from jsonb_array_elements(conditions) as c(condition));
    end if;
  end if;
  if not gate then
    if exclusive <@ shared then  -- the messages are within the guard's boundary
      wanted := shared;
    else
      wanted := array(select distinct k from unnest(exclusive || shared) k order by k);
    end if;
    if held + cardinality(wanted) >= 500 then
      held := penstock.held_locks();
      gate := held + cardinality(wanted) >= 500 and shared <> '{}';
    end if;
  end if;
  if gate then
    wanted := array(select distinct k from unnest(exclusive) k order by k);
    if wanted = '{}' then
      lock table penstock.boundary_gate in share mode;
    else
      lock table penstock.boundary_gate in share row exclusive mode;  -- the guard's lock, too
    end if;
  end if;
  done := penstock.lock_keys(wanted, exclusive, nothing_locked);
  done := set_config('penstock.locks',
    greatest(held + cardinality(wanted), 1)::text, true);  -- at least the category's
end
$$;

-- Lock boundary keys in this order, in exclusive mode those that a guard watches. A transaction that already
-- holds locks must not wait for an exclusive one: two such transactions could deadlock.
create or replace function penstock.lock_keys(
  keys bigint[], exclusive bigint[], may_wait boolean)
returns void language plpgsql
as $$
declare
  key bigint;
  done text;
begin
  if exclusive <> '{}' then
    lock table penstock.boundary_gate in row exclusive mode;
  end if;
  foreach key in array keys loop
    if key <> all (exclusive) then
      done := pg_advisory_xact_lock_shared(key);
    elsif may_wait then
      done := pg_advisory_xact_lock(key);
    elsif not pg_try_advisory_xact_lock(key) then
      raise exception using errcode = '40001',
        message = 'another transaction holds a lock on the same boundary',
        hint = 'Lock the guard as the first statement of the transaction, or retry.';
    end if;
  end loop;
end
$$;
