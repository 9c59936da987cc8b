-- Calls of write_message, write_messages and append that meet in one process, as one batch: one round trip,
-- one transaction, one wait for the disk.
--
-- The promise: the outcome is that of the same calls one after the other, in some order, each all or nothing.
-- A call that is refused does not affect the others. And no call waits for a lock here: other calls of the
-- process queue behind this one, and may be what the holder of the lock waits for.
--
-- How it is kept. The locks are those of penstock.append, of all calls together, in the strongest mode that a
-- key is wanted in. They are tried in one sorted pass; a call that would have to wait is left out, and the
-- client runs it alone. The same goes for what is rare: ids that exist already, guards that cannot be
-- checked. All other calls are decided in order of arrival. An earlier call that is accepted counts as
-- written, for the version of its stream and for the guards of later ones. One statement inserts all
-- accepted messages. There are no subtransactions, since nothing is tried that may fail.
--
-- The arguments are lists: of the messages, with the number of its call; of the calls; and of the
-- conditions of all guards, with the number of its call, as in penstock.append_one. The result has the
-- positions of each message, null if its call is not accepted; and for each such call, what became of it:
--   {"code": "PS043", ...}   refused, with the code and the facts of the error
--   {"code": "alone"}        to be run alone
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
  versions bigint[];                       -- of each call's stream, before the batch
  first_calls integer[];                   -- the first call with the same stream
  current_versions bigint[];               -- of each first call's stream, with the calls accepted so far
  sizes bigint[];                          -- how many messages each call has
  stale jsonb[] := '{}';                   -- for a call, why its guard does not hold
  may_conflict integer[] := '{}';          -- the calls whose guards watch keys of earlier ones
  conflicts bigint[] := array_fill(null::bigint, array[cardinality(stream_names)]);  -- earlier messages
  conditions jsonb;
  is_lost boolean;
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
    refusals := penstock.leave_out(refusals, left_out, 'alone');
  end if;

  if penstock.counted_locks() + 2 * cardinality(ids) + cardinality(keys || watched) >= 500 then
    refusals := penstock.leave_out_beyond_locks(
      refusals, calls, types, stream_names, numbers, keys, watching, watched);
  end if;
  with wanted as (
    select w.key, bool_or(w.exclusive) as exclusive, array_agg(w.call) as callers
    from penstock.wanted_locks(calls, types, stream_names, numbers, keys, watching, watched) w
    where refusals[w.call] is null
    group by w.key order by w.key
  ), tried as materialized (
    select w.callers, case when w.exclusive then pg_try_advisory_xact_lock(w.key)
      else pg_try_advisory_xact_lock_shared(w.key) end as is_locked
    from wanted w
  )
  select set_config('penstock.locks', (penstock.counted_locks() + count(*))::text, true),
    (select array_agg(c.call) from tried t cross join lateral unnest(t.callers) as c(call)
     where not t.is_locked)
  into done, left_out
  from tried;
  refusals := penstock.leave_out(refusals, left_out, 'alone');

  -- under the locks: the ids that exist, in the log or earlier in the batch, and the versions of the streams
  -- (without `offset 0` a plan of when the log was small would go on to read all ids, to hash them)
  select array_agg(i.call) into left_out
  from (
    select n.id, n.call, row_number() over (partition by n.id order by n.number) as occurrence
    from unnest(ids, calls) with ordinality as n(id, call, number)
  ) i
  where i.occurrence > 1 or exists (select from message_store.messages m where m.id = i.id offset 0);
  refusals := penstock.leave_out(refusals, left_out, 'alone');
  if array_remove(stream_names, null) <> '{}' then
    select array_agg(c.version order by c.call), array_agg(c.first_call order by c.call)
    into versions, first_calls
    from (
      select c.call, min(c.call) over (partition by c.stream_name) as first_call, coalesce((
          select m.position from message_store.messages m
          where m.stream_name = c.stream_name order by m.position desc limit 1), -1) as version
      from unnest(stream_names) with ordinality as c(stream_name, call)
    ) c;
  end if;

  if guards <> '{}' then
    -- the calls under whose guards' keys the index has something new: it need not match
    for this in
      select w.call
      from unnest(watching, watched_types, watched) as w(call, type_id, key)
      where refusals[w.call] is null and (
        exists (
          select from unnest(int8multirange(int8range(lows[w.call], null, '()')) - seen[w.call]) as r(range)
          cross join lateral (
            select from penstock.message_attributes a
            where a.key_pair = w.key and a.type_id = w.type_id
              and a.global_position >= lower(r.range)
              and a.global_position < coalesce(upper(r.range), 9223372036854775807) limit 1
          ) a)
        or exists (
          select from penstock.message_attributes a
          where a.key_pair = penstock.removal_key() and a.type_id = w.type_id
            and a.global_position > lows[w.call]))
      group by w.call
    loop
      stale[this] := penstock.guard_conflict(penstock.guard_of_call(
        this, guards, guard_types, guard_names, guard_values, lows[this], seen[this]));
    end loop;

    if cardinality(refusals) > 1 then
      with first_written as (
        select k.key, k.type_id, min(calls[k.number]) as call
        from unnest(numbers, type_ids, keys) as k(number, type_id, key)
        group by k.key, k.type_id
      )
      select coalesce(array_agg(w.call), '{}') into may_conflict
      from unnest(watching, watched_types, watched) as w(call, type_id, key)
      join first_written f on f.key = w.key and f.type_id = w.type_id and f.call < w.call;
    end if;
  end if;

  if stale <> '{}' or may_conflict <> '{}' or array_remove(expected_versions, null) <> '{}' then
    current_versions := versions;
    select array_agg(c.size order by c.call) into sizes
    from (select c.call, count(*) as size from unnest(calls) as c(call) group by c.call) c;
    for this in 1 .. cardinality(refusals) loop
      if refusals[this] is null then
        if expected_versions[this] <> current_versions[first_calls[this]] then
          refusals[this] := jsonb_build_object('code', 'PS001', 'stream_name', stream_names[this],
            'expected', expected_versions[this], 'actual', current_versions[first_calls[this]]);
        elsif stale[this] is not null then
          refusals[this] := stale[this];
        elsif this = any (may_conflict) then
          conditions := penstock.guard_of_call(
            this, guards, guard_types, guard_names, guard_values, 0, '{}') -> 'conditions';
          conflicts[this] := (
            select min(k.number)
            from unnest(watching, watched_types, watched) as w(call, type_id, key)
            join unnest(numbers, type_ids, keys) as k(number, type_id, key)
              on k.key = w.key and k.type_id = w.type_id
            where w.call = this and calls[k.number] < this and refusals[calls[k.number]] is null
              and exists (
                select from jsonb_array_elements(conditions) as c(condition)
                where c.condition ->> 'type' = types[k.number]
                  and penstock.carries(documents[k.number], c.condition -> 'attributes')));
          if conflicts[this] is not null then
            refusals[this] := '{"code": "PS043"}';  -- its position is not known yet
          end if;
        end if;
        if refusals[this] is null and stream_names[this] is not null then
          current_versions[first_calls[this]] := current_versions[first_calls[this]] + sizes[this];
        end if;
      end if;
    end loop;
  end if;

  if array_position(refusals, null) is not null then
    done := set_config('penstock.appending', (pg_trigger_depth() + 1)::text, true);
    with accepted as (
      -- each message that is written, and its position in its stream
      select m.number, m.id, m.type, m.data, m.metadata, c.stream_name,
        case when c.stream_name is null then 0
          else c.version + row_number() over (partition by c.stream_name order by m.number) end as position
      from unnest(calls, ids, types, documents, write_batch.metadata)
        with ordinality as m(call, id, type, data, metadata, number)
      join unnest(stream_names, versions, refusals)
        with ordinality as c(stream_name, version, refusal, call) on c.call = m.call
      where c.refusal is null
    ), new as (
      insert into message_store.messages (id, stream_name, position, type, data, metadata)
      select a.id, coalesce(a.stream_name, a.type || '-' || a.id), a.position, a.type, a.data,
        a.metadata::jsonb
      from accepted a
      order by a.number
      on conflict (id) do nothing
      returning id, position, global_position
    )
    select array_agg(n.position order by a.number), array_agg(n.global_position order by a.number),
      bool_or(a.call_refused is null and n.id is null)
    into positions, global_positions, is_lost
    from (
      select m.number, m.id, refusals[m.call] as call_refused
      from unnest(ids, calls) with ordinality as m(id, call, number)
    ) a
    left join new n on n.id = a.id;
    done := set_config('penstock.appending', coalesce(outer_append, ''), true);
    if is_lost then
      raise exception using errcode = '40001',
        message = 'another transaction wrote a message with the same id at the same time',
        hint = 'Run the calls one by one.';
    end if;
    insert into penstock.message_attributes (key_pair, type_id, global_position)
    select k.key, k.type_id, m.global_position
    from unnest(numbers, type_ids, keys) as k(number, type_id, key)
    join unnest(calls, global_positions) with ordinality as m(call, global_position, number)
      on m.number = k.number
    where refusals[m.call] is null;
  end if;

  for this in 1 .. cardinality(conflicts) loop
    if conflicts[this] is not null then
      refusals[this] := refusals[this] || jsonb_build_object(
        'type', types[conflicts[this]], 'position', global_positions[conflicts[this]]);
    end if;
  end loop;
  if array_remove(refusals, null) <> '{}' then
    refused := refusals;
  end if;
  return next;
end
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

-- The locks that each call of a batch wants: as penstock.lock_for_append takes them.
create or replace function penstock.wanted_locks(
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
-- too large by itself is run alone.
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
    -- how many locks each call wants that no earlier one does
    select w.call, count(*) as locks
    from (
      select min(w.call) as call
      from penstock.wanted_locks(calls, types, stream_names, numbers, keys, watching, watched) w
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
    refusals := penstock.leave_out(refusals, array[first_beyond], 'alone');
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
