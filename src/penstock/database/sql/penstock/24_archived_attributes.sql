-- Archived messages of declared types: what the database keeps of them.
--
-- The promise: guards, reads by conditions and partitioned groups find an archived message as they find every
-- other. How it is kept: when a message of a declared type is moved, its rows in the attribute index stay, and
-- so does a stub of it, with its type and its declared attributes. Whatever looks up the messages of the index
-- reads `indexed_messages`, which has each of them once, as a message or as a stub.
--
-- Functions that return messages return a stub as a row without an id. The client then takes the archive's
-- location, in a later statement, and reads the message from its files by its global position.
--
-- A type may be declared when messages of it are archived already, or get another attribute, which their stubs
-- do not have. The server cannot read the archive, so the client that indexes the older messages of the type
-- (penstock.fill_attributes) sends these, too (penstock.fill_archived). The type counts as indexed when both
-- are done. A message that is moved meanwhile gets its stub and its index rows by the move: a declaration waits
-- for moves that are open, and a later move sees it.

create table if not exists penstock.archived_messages (
  global_position bigint primary key,
  type text not null,
  data jsonb not null,                     -- its declared attributes
  "time" timestamp not null
);

-- The types of archived messages, declared or not, and where they are.
create table if not exists penstock.archived_types (
  type text not null,
  category text not null,
  highest_position bigint not null,
  primary key (type, category)
);

-- Messages, and stubs of archived messages of declared types: those have no id.
create or replace view penstock.indexed_messages as
  select m.id, m.stream_name, m.type, m.position, m.global_position, m.data, m.metadata, m.time
  from message_store.messages m
  union all
  select null, null, a.type, null, a.global_position, a.data, null, a.time
  from penstock.archived_messages a;

-- The declared attributes that a message carries.
create or replace function penstock.declared_data(attributes text[], data jsonb)
returns jsonb language sql immutable parallel safe
as $$
  select coalesce(jsonb_object_agg(a.name, data -> a.name), '{}')
  from unnest(attributes) as a(name)
  where data ->> a.name is not null
$$;

-- Keep stubs of messages that are about to be moved, and note their types. A type that is being indexed may
-- not have index rows for them yet. (They are inserted in the order of penstock.fill_attributes, so that
-- neither waits for the other for ever.)
create or replace function penstock.keep_stubs(category varchar, positions bigint[])
returns void language plpgsql volatile
set enable_seqscan = off
as $$
begin
  lock table message_store.messages in row exclusive mode;  -- no type is declared from here on
  insert into penstock.archived_types as t (type, category, highest_position)
  select m.type, keep_stubs.category, max(m.global_position)
  from message_store.messages m where m.global_position = any (positions)
  group by m.type
  on conflict on constraint archived_types_pkey do update
    set highest_position = greatest(t.highest_position, excluded.highest_position);
  insert into penstock.archived_messages (global_position, type, data, time)
  select m.global_position, m.type, penstock.declared_data(t.attributes, m.data), m.time
  from message_store.messages m
  join penstock.message_types t on t.type = m.type
  where m.global_position = any (positions);
  insert into penstock.message_attributes (key_pair, type_id, global_position)
  select k.key_pair, t.id, m.global_position
  from message_store.messages m
  join penstock.message_types t on t.type = m.type and t.filled_to is not null
  cross join lateral penstock.key_pairs(t.type, t.attributes, m.data) as k(key_pair)
  where m.global_position = any (positions)
  order by m.global_position, k.key_pair
  on conflict do nothing;
end
$$;

-- Index archived messages of a type: the next of them after `after`, up to `until` (null: all that are left).
-- `declared_by` and `after` come from penstock.fill_attributes. Does nothing if the type was declared again, or
-- another client was first.
create or replace function penstock.fill_archived(
  type text, declared_by xid8, after bigint, until bigint, positions bigint[], data text[],
  times timestamp[])
returns void language plpgsql
as $$
#variable_conflict use_variable
declare
  filling record;
begin
  update penstock.message_types t set archive_filled_to = until
  where t.type = fill_archived.type and t.declared_by = fill_archived.declared_by
    and t.archive_filled_to = after
  returning t.* into filling;
  if not found then
    return;
  end if;
  insert into penstock.archived_messages as s (global_position, type, data, time)
  select m.global_position, filling.type, penstock.declared_data(filling.attributes, m.data), m.time
  from unnest(positions, fill_archived.data::jsonb[], times) as m(global_position, data, time)
  on conflict on constraint archived_messages_pkey do update set data = excluded.data;
  insert into penstock.message_attributes (key_pair, type_id, global_position)
  select k.key_pair, filling.id, m.global_position
  from unnest(positions, fill_archived.data::jsonb[]) as m(global_position, data)
  cross join lateral penstock.key_pairs(filling.type, filling.attributes, m.data) as k(key_pair)
  order by m.global_position, k.key_pair
  on conflict do nothing;
end
$$;
