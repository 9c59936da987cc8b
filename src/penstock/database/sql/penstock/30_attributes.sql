-- The attribute index: finds the messages with, for example, course_name = Algebra, whichever client wrote
-- them.
--
-- A message type may declare attributes, names of fields of its data. Each message of a declared type
-- has one index row for each attribute it carries, and one for the type itself. A field that is
-- missing or null is absent; values compare as text, as `->>` returns them. The key of an attribute with a
-- value is a 64-bit hash, so no table of keys exists and no writer waits for another to insert one; readers
-- compare the values themselves, too.
--
-- The promise: a condition on a declared attribute finds every message. A statement trigger indexes the
-- rows of each insert; it is created with the first declared type, so a log without attributes does
-- not pay for it. Older messages are indexed by penstock.fill_attributes, batch by batch; until that
-- is done, conditions on the type are refused.

create table if not exists penstock.message_types (
  id integer generated always as identity primary key,
  type text not null unique,
  attributes text[] not null,
  declared_by xid8 not null default pg_current_xact_id(),
  filled_to bigint,                        -- messages up to here are indexed; null: all are
  fill_until bigint,                       -- where filling ends, once that is known
  new_attributes text[] not null default '{}',  -- those that older messages are being indexed by
  archive_filled_to bigint                 -- archived messages up to here are indexed; null: all are
);

create table if not exists penstock.message_attributes (
  key_pair bigint not null,
  type_id integer not null,
  global_position bigint not null,
  primary key (key_pair, type_id, global_position)
);

-- The key of an attribute with a value; of a type, under the empty name. (The cast to text lets the planner
-- inline the function.)
create or replace function penstock.key_pair(name text, value text)
returns bigint language sql immutable parallel safe
as $$ select hashtextextended(length(name)::text || ':' || name || value, 0) $$;

-- The key of removals: that of a type without a name. Each statement that removed messages has a row under it
-- for each of their types, and one for the type 0, with the last position of them. A guard that has not seen
-- everything up to there cannot tell whether one of them matched.
create or replace function penstock.removal_key()
returns bigint language sql immutable parallel safe
as $$ select penstock.key_pair('', '') $$;

-- The keys of a message: of its type, and of each attribute that it carries.
create or replace function penstock.key_pairs(type text, attributes text[], data jsonb)
returns setof bigint language sql immutable parallel safe
as $$
  select penstock.key_pair('', type)
  union all
  select penstock.key_pair(a.name, data ->> a.name)
  from unnest(attributes) as a(name)
  where data ->> a.name is not null
$$;

-- Index the rows of a statement, and take the shared locks on their keys. penstock.append does both itself:
-- it sets `penstock.appending` to the trigger depth of its insert. Rows that another trigger inserts
-- meanwhile have a greater depth.
create or replace function penstock.index_attributes()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
begin
  if current_setting('penstock.appending', true) = pg_trigger_depth()::text then
    return null;
  end if;
  insert into penstock.message_attributes (key_pair, type_id, global_position)
  select k.key_pair, t.id, m.global_position
  from inserted m
  join penstock.message_types t on t.type = m.type
  cross join lateral penstock.key_pairs(t.type, t.attributes, m.data) as k(key_pair)
  on conflict do nothing;  -- an attribute may have a type's name

  if found then
    perform penstock.share_boundaries(array(
      select distinct k.key_pair
      from inserted m
      join penstock.message_types t on t.type = m.type
      cross join lateral penstock.key_pairs(t.type, t.attributes, m.data) as k(key_pair)
      order by 1));
  end if;
  return null;
end
$$;

-- Messages that were moved to the archive have stubs by now, and stay in the index: see
-- 24_archived_attributes.sql.
create or replace function penstock.forget_attributes()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
declare
  gone constant bigint[] := array(
    select m.global_position
    from removed m
    join penstock.message_types t on t.type = m.type
    where not exists (
      select from penstock.archived_messages a where a.global_position = m.global_position));
begin
  if gone = '{}' then
    return null;
  end if;
  delete from penstock.message_attributes a
  using removed m
  join penstock.message_types t on t.type = m.type
  cross join lateral penstock.key_pairs(t.type, t.attributes, m.data) as k(key_pair)
  where a.key_pair = k.key_pair and a.type_id = t.id and a.global_position = m.global_position;
  insert into penstock.message_attributes (key_pair, type_id, global_position)
  select penstock.removal_key(), coalesce(t.id, 0), max(m.global_position)
  from removed m
  join penstock.message_types t on t.type = m.type
  group by grouping sets ((t.id), ())
  on conflict do nothing;

  -- the feeds of consumer groups
  delete from penstock.group_feeds f
  using removed m
  join penstock.message_types t on t.type = m.type
  cross join penstock.consumer_groups g
  where f.group_pk = g.id and f.global_position = m.global_position
    and f.feed = penstock.feed_key(penstock.projection(g.partition_by, t.attributes, m.data));

  -- and the partitions whose next message one of these was
  perform penstock.skip_messages(gone);
  return null;
end
$$;

-- For logical replication, which fires no statement triggers: the same for one row. (Consumer groups skip
-- messages that were removed.)
create or replace function penstock.index_applied()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
declare
  keys bigint[];
begin
  if current_setting('penstock.appending', true) = pg_trigger_depth()::text then
    return null;
  end if;
  with indexed as (
    insert into penstock.message_attributes (key_pair, type_id, global_position)
    select k.key_pair, t.id, new.global_position
    from penstock.message_types t
    cross join lateral penstock.key_pairs(t.type, t.attributes, new.data) as k(key_pair)
    where t.type = new.type
    on conflict do nothing
    returning key_pair
  )
  select array_agg(i.key_pair order by i.key_pair) into keys from indexed i;
  if keys is not null then
    perform penstock.share_boundaries(keys);
  end if;
  return null;
end
$$;

create or replace function penstock.forget_applied()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
begin
  delete from penstock.message_attributes a
  using penstock.message_types t
  cross join lateral penstock.key_pairs(t.type, t.attributes, old.data) as k(key_pair)
  where t.type = old.type
    and a.key_pair = k.key_pair and a.type_id = t.id and a.global_position = old.global_position
    and not exists (
      select from penstock.archived_messages s where s.global_position = old.global_position);
  if found then  -- one row for each type is enough here, where rows come one by one
    delete from penstock.message_attributes a
    where a.key_pair = penstock.removal_key() and a.global_position < old.global_position
      and a.type_id in (0, (select t.id from penstock.message_types t where t.type = old.type));
    insert into penstock.message_attributes (key_pair, type_id, global_position)
    select penstock.removal_key(), i.id, old.global_position
    from (values (0), ((select t.id from penstock.message_types t where t.type = old.type))) as i(id)
    on conflict do nothing;
  end if;
  return null;
end
$$;

-- Declare the attributes of a message type. Attributes declared before stay.
--
-- The table is locked for a moment (and if that is impossible within five seconds, the call fails), so that
-- each later statement sees the declaration. A transaction with an older snapshot does not: so filling
-- waits until all of those have ended.
create or replace function penstock.declare_type(type text, attributes text[])
returns void language plpgsql security definer set search_path = pg_catalog
as $$
#variable_conflict use_variable
declare
  saved_timeout constant text := current_setting('lock_timeout');
  locked boolean := false;
begin
  if exists (
    select from penstock.message_types t
    where t.type = declare_type.type and t.attributes @> declare_type.attributes
  ) then
    return;
  end if;

  for attempt in 1 .. 25 loop  -- short attempts: writers queue behind this lock
    begin
      perform set_config('lock_timeout', '100ms', true);
      lock table message_store.messages in share row exclusive mode;
      locked := true;
    exception
      when lock_not_available then perform pg_sleep(0.1);
    end;
    exit when locked;
  end loop;
  perform set_config('lock_timeout', saved_timeout, true);
  if not locked then
    raise exception using errcode = 'PS048',
      message = format('message type %s could not be declared: a transaction is writing', type),
      detail = jsonb_build_object('type', type);
  end if;
  insert into penstock.message_types as t (type, attributes, new_attributes, filled_to)
  values (declare_type.type,
    array(select distinct a from unnest(declare_type.attributes) a order by a),
    declare_type.attributes, 0)
  on conflict on constraint message_types_type_key do update
    set attributes = array(
        select distinct a from unnest(t.attributes || excluded.attributes) a order by a),
      new_attributes = t.new_attributes || array(
        select a from unnest(excluded.attributes) a where a <> all (t.attributes)),
      declared_by = excluded.declared_by, filled_to = 0, fill_until = null
    where not t.attributes @> excluded.attributes;  -- else another transaction did the same
  perform penstock.attach_attribute_triggers();
end
$$;

create or replace function penstock.attach_attribute_triggers()
returns void language plpgsql security definer set search_path = pg_catalog
as $$
begin
  if 4 = (
    select count(*) from pg_catalog.pg_trigger t
    where t.tgrelid = 'message_store.messages'::regclass
      and (t.tgname, t.tgenabled) in (
        ('penstock_index_attributes', 'A'), ('penstock_forget_attributes', 'A'),
        ('penstock_index_applied', 'R'), ('penstock_forget_applied', 'R'))
  ) then
    return;
  end if;
  create or replace trigger penstock_index_attributes
    after insert on message_store.messages
    referencing new table as inserted
    for each statement execute function penstock.index_attributes();
  create or replace trigger penstock_forget_attributes
    after delete on message_store.messages
    referencing old table as removed
    for each statement execute function penstock.forget_attributes();
  create or replace trigger penstock_index_applied
    after insert on message_store.messages
    for each row execute function penstock.index_applied();
  create or replace trigger penstock_forget_applied
    after delete on message_store.messages
    for each row execute function penstock.forget_applied();
  alter table message_store.messages
    enable always trigger penstock_index_attributes,
    enable always trigger penstock_forget_attributes,
    enable replica trigger penstock_index_applied,
    enable replica trigger penstock_forget_applied;
end
$$;

-- Put the triggers back where types are declared.
do $$
begin
  if exists (select from penstock.message_types) then
    perform penstock.attach_attribute_triggers();
  end if;
end
$$;

-- Whether a session has a snapshot from before a declaration, and may write without seeing it. SECURITY
-- DEFINER: most roles cannot see the snapshots of others, the role that installed Penstock may.
create or replace function penstock.older_snapshot_open(declared_by xid8)
returns boolean language sql volatile security definer set search_path = pg_catalog
as $$
  select exists (
    select from pg_catalog.pg_stat_activity s
    where s.datname = current_database() and s.pid <> pg_backend_pid()
      and s.backend_type <> 'autovacuum worker'
      and age(s.backend_xmin) >= age(declared_by::xid))
$$;

-- Index the next `most` positions of the log for a declared type. Returns how far it got and where filling
-- ends, both null when it is done. It can be repeated, stopped, and run concurrently.
--
-- When only archived messages are left, the other columns are what the client needs to read the next of them,
-- after `archived_after`, and to pass them to penstock.fill_archived.
create or replace function penstock.fill_attributes(type text, most bigint default 10000)
returns table (
  filled_to bigint, fill_until bigint,
  declared_by xid8, archived_after bigint, categories text[], location text
)
language plpgsql
as $$
#variable_conflict use_variable
declare
  filling penstock.message_types;
  archived_to bigint;
  upto bigint;
begin
  select t.* into filling from penstock.message_types t
  where t.type = fill_attributes.type for update;
  if not found or filling.filled_to is null then
    return next;
    return;
  end if;

  if filling.fill_until is null then
    if penstock.older_snapshot_open(filling.declared_by) then
      filled_to := 0;  -- a transaction from before the declaration is still open
      fill_until := penstock.last_position();
      return next;
      return;
    end if;
    filling.fill_until := penstock.watermark();
    filling.archive_filled_to := (
      select 0 where exists (
        select from penstock.archived_types t where t.type = fill_attributes.type));
  end if;

  upto := least(filling.filled_to + most, filling.fill_until);
  insert into penstock.message_attributes (key_pair, type_id, global_position)
  select k.key_pair, filling.id, m.global_position
  from message_store.messages m
  cross join lateral penstock.key_pairs(filling.type, filling.attributes, m.data) as k(key_pair)
  where m.type = filling.type
    and m.global_position > filling.filled_to and m.global_position <= upto
  order by m.global_position, k.key_pair
  on conflict do nothing;

  if upto = filling.fill_until and filling.archive_filled_to is null then
    update penstock.message_types t
    set filled_to = null, fill_until = null, archive_filled_to = null, new_attributes = '{}'
    where t.id = filling.id;
    perform penstock.reroute_type(filling.id, filling.new_attributes);
    return next;
    return;
  end if;
  update penstock.message_types t
  set filled_to = upto, fill_until = filling.fill_until, archive_filled_to = filling.archive_filled_to
  where t.id = filling.id;
  filled_to := upto;
  fill_until := filling.fill_until;
  if filling.archive_filled_to is not null then
    select max(t.highest_position), array_agg(t.category) into archived_to, categories
    from penstock.archived_types t where t.type = fill_attributes.type;
    filled_to := filled_to + filling.archive_filled_to;
    fill_until := fill_until + archived_to;
    if upto = filling.fill_until then
      declared_by := filling.declared_by;
      archived_after := filling.archive_filled_to;
      location := penstock.archive_location();
    end if;
  end if;
  return next;
end
$$;
