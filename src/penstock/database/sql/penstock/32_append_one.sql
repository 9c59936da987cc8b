-- Append one message: what penstock.append does for many, on a shorter way, since most come alone.
--
-- The promise: the same as penstock.append's, which has all the rules. How it is kept: this function
-- goes the way that nearly every append takes, and where anything is out of the ordinary (a condition
-- that cannot be checked, a decision that is too late, an id that is there already) it hands the
-- message over to penstock.append, which then returns, or says what is wrong. Locks that were taken by
-- then do no harm: it takes the same ones.
--
-- What costs is to set up a plan, and so is each expression, once for every transaction. So there are
-- few statements, none with a plan of many nodes, and loops in place of aggregates.

create or replace function penstock.append_one(
  stream_name varchar,
  id uuid,
  type text,
  data jsonb,
  metadata jsonb default null,
  expected_version bigint default null,
  guard jsonb default null
)
returns bigint language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  held integer := 0;                       -- locks of this transaction, from before
  declared record;                         -- the type that is looked at: at first the message's
  type_id integer;
  keys bigint[];                           -- of the message, in order
  watched bigint[] := '{}';                -- of the guard's conditions, and their types
  watched_types integer[] := '{}';
  condition jsonb;
  accepted jsonb;
  wanted bigint[];
  name text;
  around constant text := current_setting('penstock.appending', true);  -- of an append whose trigger calls us
  stream_version bigint := -1;
  written bigint;
  done text;
begin
  <<usual>>
  begin
    lock table message_store.messages in row exclusive mode;  -- no type is declared from here on
    select t.id, t.type, t.attributes, t.filled_to, array(  -- two attributes may share a key
      select distinct k from penstock.key_pairs(t.type, t.attributes, append_one.data) k order by k
    ) as keys
    into declared
    from penstock.message_types t where t.type = append_one.type;
    type_id := declared.id;
    keys := coalesce(declared.keys, '{}');

    if guard is not null then
      exit usual when current_setting('transaction_isolation') not like 'read %';
      for number in 0 .. jsonb_array_length(guard -> 'conditions') - 1 loop
        condition := guard -> 'conditions' -> number;
        if condition ->> 'type' is distinct from declared.type then
          select t.id, t.type, t.attributes, t.filled_to, null::bigint[] as keys into declared
          from penstock.message_types t
          where t.type = condition ->> 'type';
        end if;
        accepted := condition -> 'attributes';
        exit usual when declared.filled_to is not null
          or accepted - declared.attributes <> '{}' is not false;
        watched_types := watched_types || declared.id;
        if accepted = '{}' then
          watched := watched || penstock.key_pair('', declared.type);
        end if;
        foreach name in array declared.attributes loop
          for value in 0 .. coalesce(jsonb_array_length(accepted -> name), 0) - 1 loop
            watched := watched || penstock.key_pair(name, accepted -> name ->> value);
          end loop;
        end loop;
      end loop;
    end if;
    if watched <@ keys then  -- as where a decision writes within its own boundary
      wanted := keys;
    else
      wanted := array(select distinct k from unnest(watched || keys) k order by k);
    end if;
    if pg_current_xact_id_if_assigned() is not null
        or current_setting('penstock.locks', true) <> '' then
      held := penstock.counted_locks();
    end if;
    exit usual when held + cardinality(wanted) >= 499;

    if append_one.stream_name is null then
      done := pg_advisory_xact_lock_shared(
        message_store.hash_64(message_store.category(append_one.type)));
    else
      done := penstock.lock_stream(append_one.stream_name);
      stream_version := coalesce(message_store.stream_version(append_one.stream_name), -1);
      exit usual when append_one.expected_version <> stream_version;
    end if;
    done := penstock.lock_keys(wanted, watched, may_wait => held = 0);
    if held > 0 or cardinality(wanted) > 10 then  -- else the announcement counts for these few
      done := set_config('penstock.locks', (held + 1 + cardinality(wanted))::text, true);
    end if;

    exit usual when guard is not null and exists (
      select from penstock.message_attributes a
      where a.key_pair = any (watched) and a.type_id = any (watched_types)
        and a.global_position > (guard ->> 'low')::bigint
        and a.global_position <> all (translate(guard ->> 'seen', '[]', '{}')::bigint[]));

    done := set_config('penstock.appending', (pg_trigger_depth() + 1)::text, true);
    insert into message_store.messages (id, stream_name, position, type, data, metadata)
    values (
      append_one.id,
      coalesce(append_one.stream_name, append_one.type || '-' || append_one.id),
      case when append_one.stream_name is null then 0 else stream_version + 1 end,
      append_one.type,
      append_one.data,
      append_one.metadata
    )
    on conflict (id) do nothing
    returning global_position into written;
    done := set_config('penstock.appending', coalesce(around, ''), true);
    exit usual when written is null;

    insert into penstock.message_attributes (key_pair, type_id, global_position)
    select unnest(keys), type_id, written;
    return written;
  end usual;

  return (penstock.append(append_one.stream_name, array[append_one.id], array[append_one.type],
    array[append_one.data::text], array[append_one.metadata::text],
    append_one.expected_version, guard))[1];
end
$$;
