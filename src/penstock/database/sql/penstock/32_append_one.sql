-- Append one message: penstock.append on a shorter path, since most messages are appended one by one.
--
-- The promise: the same as penstock.append's, which has all the rules. How it is kept: this function
-- handles the usual case. In any other (a condition that cannot be checked, a guard that does not hold, an
-- id that exists) it calls penstock.append, which returns the result or raises. Locks that were taken by
-- then do no harm: penstock.append takes the same ones.
--
-- The start of each plan and each expression costs something in every transaction. So there are few
-- statements with small plans, and the first one returns all that the later ones need. For the same reason
-- a guard is passed in lists: type, name and value of each condition. A condition on a whole type has the
-- empty name, and the type as its value; without `guard_types`, all conditions are on the message's type.

create or replace function penstock.append_one(
  stream_name varchar,
  id uuid,
  type text,
  data jsonb,
  metadata jsonb default null,
  expected_version bigint default null,
  guard_types text[] default null,
  guard_names text[] default null,
  guard_values text[] default null,
  guard_low bigint default 0,
  guard_seen int8multirange default '{}'
)
returns bigint language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  type_id integer;
  keys bigint[];                           -- of the message, in order
  watched bigint[];                        -- of the guard's conditions, and their types
  watched_types integer[];
  is_simple boolean;                       -- no locks from before, conditions on the message's type only
  held integer := 0;                       -- locks of this transaction from before
  outer_append text;                       -- of an append whose trigger calls this
  stream_version bigint;
  key bigint;
  written bigint;
  done text;
begin
  <<usual>>
  begin
    lock table message_store.messages in row exclusive mode;  -- no type is declared from here on
    select t.id,
      array(
        select distinct penstock.key_pair(k.name, k.value)  -- two attributes may share a key
        from (
          select n.name, case n.name when '' then t.type else append_one.data ->> n.name end as value
          from (select unnest(array_prepend('', t.attributes)) as name) n
        ) k
        where k.value is not null order by 1),
      array(
        select penstock.key_pair(c.name, c.value)
        from (select unnest(guard_names) as name, unnest(guard_values) as value) c),
      array[t.id],
      pg_current_xact_id_if_assigned() is null
        and coalesce(current_setting('penstock.locks', true), '') = ''
        and (guard_names is null
          or current_setting('transaction_isolation') like 'read %' and t.filled_to is null
            and guard_types is null and guard_names <@ array_prepend('', t.attributes)
            and cardinality(guard_names) < 400),
      current_setting('penstock.appending', true)
    into type_id, keys, watched, watched_types, is_simple, outer_append
    from penstock.message_types t where t.type = append_one.type;

    if is_simple is not true then
      held := penstock.counted_locks();
      outer_append := current_setting('penstock.appending', true);
      select array_agg(penstock.key_pair(c.name, c.value)), array_agg(t.id),
        current_setting('transaction_isolation') like 'read %' and bool_and(
          t.id is not null and t.filled_to is null and (c.name = '' or c.name = any (t.attributes)))
      into watched, watched_types, is_simple
      from unnest(guard_types, guard_names, guard_values) as c(type, name, value)
      left join lateral (
        select t.id, t.attributes, t.filled_to from penstock.message_types t
        where t.type = coalesce(c.type, append_one.type) offset 0
      ) t on true;
      exit usual when guard_names is not null and is_simple is not true;
      exit usual when held + cardinality(watched || keys) >= 499;
    end if;

    if append_one.stream_name is null then
      done := pg_advisory_xact_lock_shared(
        message_store.hash_64(message_store.category(append_one.type)));
    else
      done := penstock.lock_stream(append_one.stream_name);
      stream_version := coalesce(message_store.stream_version(append_one.stream_name), -1);
      exit usual when append_one.expected_version <> stream_version;
    end if;
    if held = 0 and watched <@ keys and cardinality(keys) <= 10 then
      -- the usual case: the message is within the guard's boundary. The announcement counts for these few
      if guard_names is not null then
        lock table penstock.boundary_gate in row exclusive mode;
      end if;
      foreach key in array keys loop
        done := case when key = any (watched) then pg_advisory_xact_lock(key)
          else pg_advisory_xact_lock_shared(key) end;
      end loop;
    else
      done := penstock.lock_keys(
        array(select distinct k from unnest(watched || keys) k order by k),
        coalesce(watched, '{}'), may_wait => held = 0);
      done := set_config('penstock.locks',
        (held + 1 + coalesce(cardinality(watched || keys), 0))::text, true);
    end if;

    if guard_names is not null then
      if not isempty(guard_seen) then
        exit usual when penstock.has_unseen(watched, watched_types, guard_low, guard_seen);
      else
        exit usual when exists (
          select from penstock.message_attributes a
          where a.key_pair = any (array_prepend(penstock.removal_key(), watched))
            and a.type_id = any (watched_types) and a.global_position > guard_low);
      end if;
    end if;

    done := set_config('penstock.appending', (pg_trigger_depth() + 1)::text, true);
    insert into message_store.messages (id, stream_name, position, type, data, metadata)
    values (
      append_one.id,
      coalesce(append_one.stream_name, append_one.type || '-' || append_one.id),
      coalesce(stream_version + 1, 0),
      append_one.type,
      append_one.data,
      append_one.metadata
    )
    on conflict (id) do nothing
    returning global_position into written;
    done := set_config('penstock.appending', coalesce(outer_append, ''), true);
    exit usual when written is null;
    if written <= guard_low then  -- the guard is from before a TRUNCATE
      perform penstock.refuse_beyond_end(guard_low, written - 1);
    end if;

    insert into penstock.message_attributes (key_pair, type_id, global_position)
    select unnest(keys), type_id, written;
    return written;
  end usual;

  return (penstock.append(append_one.stream_name, array[append_one.id], array[append_one.type],
    array[append_one.data::text], array[append_one.metadata::text], append_one.expected_version,
    penstock.as_guard(
      append_one.type, guard_types, guard_names, guard_values, guard_low, guard_seen)))[1];
end
$$;

-- The guard as penstock.append takes it, with one condition for each type; null without a guard.
create or replace function penstock.as_guard(
  own_type text, types text[], names text[], "values" text[], low bigint, seen int8multirange)
returns jsonb language sql immutable parallel safe
as $$
  select jsonb_build_object(
    'conditions', jsonb_agg(jsonb_build_object('type', t.type, 'attributes', t.attributes)),
    'low', low, 'seen', seen::text)
  from (
    select a.type,
      case when bool_or(a.name = '') then '{}' else jsonb_object_agg(a.name, a.values) end as attributes
    from (
      select coalesce(c.type, own_type) as type, c.name, jsonb_agg(distinct c.value) as values
      from unnest(types, names, "values") as c(type, name, value)
      group by 1, 2
    ) a
    group by a.type
  ) t
  having names is not null
$$;
