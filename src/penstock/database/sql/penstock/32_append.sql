-- Append messages, under a guard or without: the write for those who think in attributes.
--
-- Without a stream name each message gets a stream of its own, {type}-{id}: its category is its type,
-- and nothing contends. The order: all locks; ids that exist already; the expected version; the guard;
-- the insert. All or none, and a retry with the same ids returns the first result.

create or replace function penstock.append(
  stream_name varchar,
  ids uuid[],
  types text[],
  data text[],
  metadata text[],
  expected_version bigint default null,
  guard jsonb default null,
  whole_categories boolean default false   -- beside a genuine Message DB, whose readers rely on it
)
returns bigint[] language plpgsql
as $$
#variable_conflict use_column
declare
  stream_version bigint := -1;
  positions bigint[];
  present record;
  done text;
begin
  if guard is not null then
    perform penstock.refuse_old_snapshot();
    perform penstock.check_conditions(guard -> 'conditions');
  end if;
  perform penstock.lock_for_append(
    append.stream_name, types, data, guard, whole_categories);

  if append.stream_name is not null then
    stream_version := coalesce(message_store.stream_version(append.stream_name), -1);
  end if;

  select count(*) as count, min(m.id::text) as id, array_agg(m.global_position order by i.ordinality)
    as positions, min(m.stream_name) as stream_name
  into present
  from unnest(append.ids) with ordinality as i(id, ordinality)
  join message_store.messages m on m.id = i.id;
  if present.count = cardinality(append.ids) then
    return present.positions;
  elsif present.count > 0 then
    raise exception using errcode = 'PS002',
      message = format('message %s exists already, in stream %s, and others of this batch do not',
        present.id, present.stream_name),
      detail = jsonb_build_object('id', present.id, 'stream_name', present.stream_name);
  end if;

  if append.expected_version <> stream_version then
    raise exception using errcode = 'PS001',
      message = format('Wrong expected version: %s (Stream: %s, Stream Version: %s)',
        append.expected_version, append.stream_name, stream_version),
      detail = jsonb_build_object('stream_name', append.stream_name,
        'expected', append.expected_version, 'actual', stream_version);
  end if;
  if guard is not null then
    perform penstock.check_guard(guard);
  end if;

  with new as (
    insert into message_store.messages (id, stream_name, position, type, data, metadata)
    select m.id, coalesce(append.stream_name, m.type || '-' || m.id),
      case when append.stream_name is null then 0 else stream_version + m.ordinality end,
      m.type, m.data::jsonb, m.metadata::jsonb
    from unnest(append.ids, append.types, append.data, append.metadata)
      with ordinality as m(id, type, data, metadata, ordinality)
    order by m.ordinality
    returning global_position
  )
  select array_agg(n.global_position order by n.global_position) into positions from new n;
  return positions;
end
$$;

create or replace function penstock.lock_for_append(
  stream_name varchar, types text[], data text[], guard jsonb, whole_categories boolean)
returns void language plpgsql
as $$
declare
  categories varchar[];
  shared bigint[];
  key bigint;
  done text;
begin
  if stream_name is not null and whole_categories then
    perform message_store.acquire_lock(stream_name);
  elsif stream_name is not null then
    perform penstock.lock_stream(stream_name);
  else
    categories := array(
      select c from (select distinct message_store.category(t) from unnest(types) t) as d(c)
      order by message_store.hash_64(c));
    if whole_categories or (cardinality(types) >= 500 and penstock.counted_locks() = 0) then
      perform penstock.lock_categories(categories);
    else
      foreach key in array array(select message_store.hash_64(c) from unnest(categories) c) loop
        done := pg_advisory_xact_lock_shared(key);
      end loop;
    end if;
  end if;

  shared := array(
    select distinct k.key
    from unnest(types, data) as m(type, data)
    join penstock.message_types t on t.type = m.type
    cross join lateral penstock.key_pairs(t.type, t.attributes, m.data::jsonb) as k(key));
  if guard is not null or shared <> '{}' then
    perform penstock.lock_boundaries(
      coalesce(penstock.boundary_keys(guard -> 'conditions'), '{}'), shared);
  end if;
end
$$;
