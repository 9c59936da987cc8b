-- Concurrent calls of write_message, write_messages and append of one process, as one batch: one round trip,
-- one transaction, one wait for the disk.
--
-- The promise: the outcome is that of the same calls one after the other, in some order, each all or nothing.
-- A call that is refused does not affect the others. And no call waits for a lock here: other calls of the
-- process queue behind this one, and may be what the holder of the lock waits for.
--
-- How it is kept. The locks are those of penstock.append, of all calls together, in the strongest mode that is
-- needed of a key. They are tried in one sorted pass; a call that would have to wait is left out. So is what
-- is rare, which the client sends by itself: ids that exist already, guards that cannot be checked. All other
-- calls are decided in order of arrival. An earlier call that is accepted counts as written, for the version
-- of its stream and for the guards of later ones. One statement inserts all accepted messages. There are no
-- subtransactions, since nothing is tried that may fail.
--
-- The arguments are lists: of the messages, with the number of its call; of the calls; and of the
-- conditions of all guards, with the number of its call, as in penstock.append_one. The result has the
-- positions of each message, null if its call is not accepted; and for each such call, what became of it:
--   {"code": "PS043", ...}   refused, with the code and the facts of the error
--   {"code": "locked"}       somebody holds a lock on what it writes or watches
--   {"code": "unbatched"}    to be run by itself
--   {"code": "again"}        to be sent again: with it the transaction would hold 500 locks

create or replace function penstock.write_batch(
  calls integer[], ids uuid[], types text[], data text[], metadata text[],
  stream_names varchar[], expected_versions bigint[], lows bigint[], seen int8multirange[],
  guards integer[], guard_types text[], guard_names text[], guard_values text[]
)
returns table (positions bigint[], global_positions bigint[], refused jsonb[])
language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  documents constant jsonb[] := write_batch.data::jsonb[];
  outer_append constant text := current_setting('penstock.appending', true);  -- whose trigger calls this
  refusals jsonb[] := array_fill(null::jsonb, array[cardinality(stream_names)]);  -- null: accepted
  left_out integer[];
  numbers bigint[];                        -- the keys of the messages, with number and type of each
  type_ids integer[];
  keys bigint[];
  watching integer[] := '{}';              -- the keys of the guards, with call and type of each
  watched_types integer[] := '{}';
  watched bigint[] := '{}';
  not_locked bigint[];
  overlap boolean;                         -- whether two calls need one key, and one of them excludes others
  versions bigint[];                       -- of each call's stream, before the call
  next_calls integer[];                    -- the next call with the same stream
  first_messages integer[];                -- the number of each call's first message; null: each has one
  to_be_checked integer[];                 -- the calls whose guards may not hold
  stale jsonb[] := '{}';                   -- for a call, why its guard does not hold
  may_conflict integer[] := '{}';          -- the calls whose guards watch keys of earlier ones
  conflicts integer[] := array_fill(null::integer, array[cardinality(stream_names)]);  -- earlier messages
  accepted integer[];                      -- the numbers of the messages to be written; null: all
  written bigint[];                        -- where they are in their streams, and in the log
  written_globally bigint[];
  this integer;
  done text;
begin
  lock table message_store.messages in row exclusive mode nowait;  -- no type is declared from here on
  select array_agg(k.number), array_agg(k.type_id), coalesce(array_agg(k.key), '{}')
  into numbers, type_ids, keys
  from (
    select distinct m.number, t.id as type_id, k.key  -- two attributes may share a key
    from unnest(types, documents) with ordinality as m(type, data, number)
    join penstock.message_types t on t.type = m.type
    cross join lateral penstock.key_pairs(t.type, t.attributes, m.data) as k(key)
  ) k;
  if guards <> '{}' then
    lock table penstock.boundary_gate in row exclusive mode nowait;
    done := penstock.refuse_old_snapshot();
    select array_agg(c.call), array_agg(t.id), array_agg(penstock.key_pair(c.name, c.value)),
      array_agg(c.call) filter (
        where t.id is null or t.filled_to is not null or c.name <> '' and c.name <> all (t.attributes)
          or lows[c.call] > penstock.last_position())  -- from before a TRUNCATE
    into watching, watched_types, watched, left_out
    from unnest(guards, guard_types, guard_names, guard_values) as c(call, type, name, value)
    left join lateral (
      select t.id, t.attributes, t.filled_to from penstock.message_types t where t.type = c.type offset 0
    ) t on true;
    if left_out is not null then
      refusals := penstock.leave_out(refusals, left_out, 'unbatched');
    end if;
  end if;

  if penstock.counted_locks() + 2 * cardinality(ids) + cardinality(keys || watched) >= 500 then
    refusals := penstock.leave_out_beyond_locks(
      refusals, calls, types, stream_names, numbers, keys, watching, watched);
  end if;
  select set_config('penstock.locks', (penstock.counted_locks() + count(*))::text, true),
    array_agg(t.key) filter (where not t.is_locked), bool_or(t.overlap)
  into done, not_locked, overlap
  from (
    select w.key, case when w.exclusive then pg_try_advisory_xact_lock(w.key)
      else pg_try_advisory_xact_lock_shared(w.key) end as is_locked, w.overlap
    from (
      select w.key, bool_or(w.exclusive) as exclusive,
        bool_or(w.exclusive) and min(w.call) < max(w.call) as overlap
      from penstock.needed_locks(calls, types, stream_names, numbers, keys, watching, watched) w
      where refusals[w.call] is null
      group by w.key order by w.key
    ) w offset 0
  ) t;
  if not_locked is not null then
    refusals := penstock.leave_out(refusals, array(
      select w.call
      from penstock.needed_locks(calls, types, stream_names, numbers, keys, watching, watched) w
      where w.key = any (not_locked)), 'locked');
  end if;

  -- under the locks: the ids that exist, in the log or earlier in the batch, and the versions of the streams
  -- (without `offset 0` a plan of when the log was small would go on to read all ids, to hash them)
  select array_agg(i.call) into left_out
  from (
    select n.id, n.call, row_number() over (partition by n.id order by n.number) as occurrence
    from unnest(ids, calls) with ordinality as n(id, call, number)
  ) i
  where i.occurrence > 1 or exists (select from message_store.messages m where m.id = i.id offset 0);
  if left_out is not null then
    refusals := penstock.leave_out(refusals, left_out, 'unbatched');
  end if;
  if array_remove(stream_names, null) <> '{}' then
    select array_agg(coalesce((
        select m.position from message_store.messages m
        where m.stream_name = c.stream_name order by m.position desc limit 1), -1) order by c.call)
    into versions
    from unnest(stream_names) with ordinality as c(stream_name, call);
  end if;

  if guards <> '{}' then
    -- the calls under whose guards' keys the index has something new: it need not match
    select array_agg(distinct w.call) into to_be_checked
    from unnest(watching, watched_types, watched) as w(call, type_id, key)
    where refusals[w.call] is null and case when isempty(seen[w.call])
      then exists (
        select from penstock.message_attributes a
        where a.key_pair = w.key and a.type_id = w.type_id and a.global_position > lows[w.call])
      else exists (
        select from unnest(int8multirange(int8range(lows[w.call], null, '()')) - seen[w.call]) as r(range)
        cross join lateral (
          select from penstock.message_attributes a
          where a.key_pair = w.key and a.type_id = w.type_id
            and a.global_position >= lower(r.range)
            and a.global_position < coalesce(upper(r.range), 9223372036854775807) limit 1
        ) a)
      end
      or (select exists (
          select from penstock.message_attributes a
          where a.key_pair = penstock.removal_key() and a.type_id = any (watched_types)
            and a.global_position > (select min(l.low) from unnest(lows) as l(low))));
    if to_be_checked is not null then
      foreach this in array to_be_checked loop
        stale[this] := penstock.guard_conflict(penstock.guard_of_call(
          this, guards, guard_types, guard_names, guard_values, lows[this], seen[this]));
      end loop;
    end if;
  end if;

  if cardinality(ids) > cardinality(stream_names) then
    for this in reverse cardinality(calls) .. 1 loop
      first_messages[calls[this]] := this;
    end loop;
  end if;
  if overlap then
    select array_agg(c.next_call order by c.call) into next_calls
    from (
      select c.call, case when c.stream_name is not null then
        lead(c.call) over (partition by c.stream_name order by c.call) end as next_call
      from unnest(stream_names) with ordinality as c(stream_name, call)
    ) c;
    with first_written as (
      select k.key, k.type_id, min(calls[k.number]) as call
      from unnest(numbers, type_ids, keys) as k(number, type_id, key)
      group by k.key, k.type_id
    )
    select coalesce(array_agg(w.call), '{}') into may_conflict
    from unnest(watching, watched_types, watched) as w(call, type_id, key)
    join first_written f on f.key = w.key and f.type_id = w.type_id and f.call < w.call;
  end if;
  if overlap or stale <> '{}' or array_remove(expected_versions, null) <> '{}' then
    for this in 1 .. cardinality(refusals) loop
      if refusals[this] is null then
        if expected_versions[this] <> versions[this] then
          refusals[this] := jsonb_build_object('code', 'PS001', 'stream_name', stream_names[this],
            'expected', expected_versions[this], 'actual', versions[this]);
        elsif stale[this] is not null then
          refusals[this] := stale[this];
        elsif this = any (may_conflict) then
          conflicts[this] := penstock.first_match(
            penstock.guard_of_call(this, guards, guard_types, guard_names, guard_values, 0, '{}'),
            types, documents, array(
              select k.number
              from unnest(watching, watched_types, watched) as w(call, type_id, key)
              join unnest(numbers, type_ids, keys) as k(number, type_id, key)
                on k.key = w.key and k.type_id = w.type_id
              where w.call = this and calls[k.number] < this and refusals[calls[k.number]] is null));
          if conflicts[this] is not null then
            refusals[this] := '{"code": "PS043"}';  -- its position is not known yet
          end if;
        end if;
      end if;
      if next_calls[this] is not null then
        versions[next_calls[this]] := versions[this] + case when refusals[this] is null
          then (select count(*) from unnest(calls) as c(call) where c.call = this) else 0 end;
      end if;
    end loop;
  end if;

  if array_remove(refusals, null) <> '{}' then
    refused := refusals;
    accepted := array(
      select m.number from unnest(calls) with ordinality as m(call, number)
      where refusals[m.call] is null order by m.number);
  end if;
  if accepted is distinct from '{}' then
    done := set_config('penstock.appending', (pg_trigger_depth() + 1)::text, true);
    with new as (
      insert into message_store.messages (id, stream_name, position, type, data, metadata)
      select m.id, coalesce(stream_names[m.call], m.type || '-' || m.id),
        case when stream_names[m.call] is null then 0
          else versions[m.call] + 1 + m.number - coalesce(first_messages[m.call], m.number) end,
        m.type, m.data, m.metadata::jsonb
      from unnest(calls, ids, types, documents, write_batch.metadata)
        with ordinality as m(call, id, type, data, metadata, number)
      where refusals[m.call] is null
      order by m.number
      on conflict (id) do nothing
      returning position, global_position
    )
    select array_agg(n.position), array_agg(n.global_position) into written, written_globally
    from new n;
    done := set_config('penstock.appending', coalesce(outer_append, ''), true);
    if cardinality(written) is distinct from cardinality(coalesce(accepted, calls)) then
      raise exception using errcode = '40001',
        message = 'another transaction wrote a message with the same id at the same time',
        hint = 'Run the calls one by one.';
    end if;
    if accepted is null then
      positions := written;
      global_positions := written_globally;
    else
      positions := array_fill(null::bigint, array[cardinality(ids)]);
      global_positions := positions;
      for this in 1 .. cardinality(accepted) loop
        positions[accepted[this]] := written[this];
        global_positions[accepted[this]] := written_globally[this];
      end loop;
    end if;
    insert into penstock.message_attributes (key_pair, type_id, global_position)
    select k.key, k.type_id, global_positions[k.number]
    from unnest(numbers, type_ids, keys) as k(number, type_id, key)
    where refusals[calls[k.number]] is null;
  end if;

  for this in 1 .. cardinality(conflicts) loop
    if conflicts[this] is not null then
      refused[this] := refused[this] || jsonb_build_object(
        'type', types[conflicts[this]], 'position', global_positions[conflicts[this]]);
    end if;
  end loop;
  return next;
end
$$;

-- The first of these messages of a batch that a guard excludes, null if there is none.
create or replace function penstock.first_match(
  guard jsonb, types text[], documents jsonb[], numbers bigint[])
returns integer language sql immutable parallel safe
as $$
  select min(n.number)
  from unnest(numbers) as n(number)
  where exists (
    select from jsonb_array_elements(guard -> 'conditions') as c(condition)
    where c.condition ->> 'type' = types[n.number]
      and penstock.carries(documents[n.number], c.condition -> 'attributes'))
$$;

-- Leave out these calls, unless they are refused already.
create or replace function penstock.leave_out(refusals jsonb[], calls integer[], code text)
returns jsonb[] language plpgsql immutable parallel safe
as $$
declare
  call integer;
begin
  if calls is not null then
    foreach call in array calls loop
      refusals[call] := coalesce(refusals[call], jsonb_build_object('code', code));
    end loop;
  end if;
  return refusals;
end
$$;

-- The locks that each call of a batch needs: as penstock.lock_for_append takes them.
create or replace function penstock.needed_locks(
  calls integer[], types text[], stream_names varchar[], numbers bigint[], keys bigint[],
  watching integer[], watched bigint[])
returns table (call integer, key bigint, exclusive boolean) language sql immutable parallel safe
as $$
  select n.call, message_store.hash_64(n.category), false
  from (
    select distinct m.call, message_store.category(coalesce(stream_names[m.call], m.type)) as category
    from unnest(calls, types) as m(call, type)
  ) n
  union all
  select s.call::integer, penstock.stream_key(s.stream_name), true
  from unnest(stream_names) with ordinality as s(stream_name, call) where s.stream_name is not null
  union all
  select calls[k.number], k.key, false from unnest(numbers, keys) as k(number, key)
  union all
  select w.call, w.key, true from unnest(watching, watched) as w(call, key)
$$;

-- Leave out the calls from the first one on with which the transaction would hold 500 locks. A call that is
-- too large for that is to be sent by itself.
create or replace function penstock.leave_out_beyond_locks(
  refusals jsonb[], calls integer[], types text[], stream_names varchar[], numbers bigint[], keys bigint[],
  watching integer[], watched bigint[])
returns jsonb[] language plpgsql volatile
as $$
declare
  held constant integer := penstock.held_locks();
  first_beyond integer;
begin
  with added as (
    -- how many locks each call needs that no earlier one does
    select w.call, count(*) as locks
    from (
      select min(w.call) as call
      from penstock.needed_locks(calls, types, stream_names, numbers, keys, watching, watched) w
      where refusals[w.call] is null
      group by w.key
    ) w
    group by w.call
  ), total as (
    select a.call, sum(a.locks) over (order by a.call) as locks from added a
  )
  select min(t.call) into first_beyond from total t where held + t.locks >= 500;
  if first_beyond is null then
    return refusals;
  elsif array_position(refusals, null) = first_beyond then
    refusals := penstock.leave_out(refusals, array[first_beyond], 'unbatched');
  end if;
  return penstock.leave_out(
    refusals, array(select generate_series(first_beyond, cardinality(refusals))), 'again');
end
$$;

-- The guard of a call, as penstock.append takes it.
create or replace function penstock.guard_of_call(
  call integer, guards integer[], types text[], names text[], "values" text[],
  low bigint, seen int8multirange)
returns jsonb language sql immutable parallel safe
as $$
  select penstock.as_guard(
    null, array_agg(g.type), array_agg(g.name), array_agg(g.value), guard_of_call.low, guard_of_call.seen)
  from unnest(guards, types, names, "values") as g(call, type, name, value)
  where g.call = guard_of_call.call
$$;
