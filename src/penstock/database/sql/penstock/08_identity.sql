-- Which log this is, and whether a position still means what it meant.
--
-- A position that is kept outside the database (in a Spark checkpoint, in a client's own file) does not
-- say from which log it was read. After a restore from a backup the log assigns the same positions again,
-- and a reader that resumed by the number alone would skip all those messages.
--
-- The promise: such a reader gets an error. How it is kept: it passes the id of the message that it read at
-- that position, and the incarnation of the log. The message is looked up by its position: it is there
-- with that id, or retention removed it, or the log has changed. A restored copy has the identity and
-- the incarnation of its original, and differs from it by its messages. The incarnation is for a reader
-- that has read no message yet: it changes with every TRUNCATE.

create table if not exists penstock.identity (
  one_row boolean primary key default true check (one_row),
  id uuid not null default gen_random_uuid(),           -- assigned when Penstock is installed
  incarnation uuid not null default gen_random_uuid()   -- assigned again when the log is truncated
);

insert into penstock.identity default values on conflict do nothing;

create or replace function penstock.log_identity()
returns table (id uuid, incarnation uuid)
language sql stable
as $$ select i.id, i.incarnation from penstock.identity i $$;

create or replace function penstock.renew_incarnation()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
begin
  update penstock.identity set incarnation = gen_random_uuid();
  return null;
end
$$;

create or replace trigger penstock_renew_incarnation
  after truncate on message_store.messages
  for each statement execute function penstock.renew_incarnation();

alter table message_store.messages enable always trigger penstock_renew_incarnation;

-- Whether retention removed, or the archive took, the message at this position of a stream, or at this global position of a
-- category or of `$all`. Only a prefix of a stream is ever removed.
create or replace function penstock.was_removed(target varchar, "position" bigint)
returns boolean language plpgsql stable
as $$
#variable_conflict use_variable
begin
  if not message_store.is_category(target) then
    return position < (
      select m.position from message_store.messages m
      where m.stream_name = target order by m.position limit 1);
  end if;
  return exists (
    select from penstock.retentions r
    where (target = '$all' or r.category = target)
      and r.highest_position >= position and r.lowest_position <= position)
    or exists (
      select from penstock.archive_segments s
      where (target = '$all' or s.category = target)
        and s.highest_position >= position and s.lowest_position <= position);
end
$$;

-- Whether the log still holds the message that was read at this position, or held it until retention
-- removed it. The position is in the stream if `target` is a stream, else a global one. Without an id
-- only the incarnation is compared. With `deleted`, a message that was deleted by a DELETE counts, too.
-- Of a stream that is named after its only message, nothing is left once that is removed.
create or replace function penstock.still_holds(
  target varchar, "position" bigint, id uuid, incarnation uuid default null,
  deleted boolean default false)
returns boolean language plpgsql volatile
as $$
#variable_conflict use_variable
declare
  found_id uuid;
begin
  if message_store.is_category(target) then
    found_id := (select m.id from message_store.messages m where m.global_position = position);
  else
    found_id := (
      select m.id from message_store.messages m
      where m.stream_name = target and m.position = still_holds.position);
  end if;
  return found_id = id
    or coalesce(incarnation = (select l.incarnation from penstock.log_identity() l), true)
      and (id is null
        or found_id is null and (
          deleted and position <= penstock.last_position()
          or penstock.was_removed(target, position)
          or message_store.id(target) = id::text and exists (
            select from penstock.retentions r where r.category = message_store.category(target)
            union all
            select from penstock.archive_segments s
            where s.category = message_store.category(target))));
end
$$;

-- Return the position of the message that a reader read last; refuse if the log has changed since.
create or replace function penstock.resume_after(
  target varchar, "position" bigint, id uuid, deleted boolean default false)
returns bigint language plpgsql volatile
as $$
begin
  if penstock.still_holds(target, position, id, null, deleted) then
    return position;
  end if;
  raise exception using errcode = 'PS009',
    message = format('message %s, which was read at position %s, is not in the log', id, position),
    detail = jsonb_build_object('target', target, 'position', position, 'id', id),
    hint = 'The log was restored from a backup or truncated, or this is another database.';
end
$$;
