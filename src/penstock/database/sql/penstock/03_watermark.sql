-- The watermark: the position up to which the log is complete.
--
-- The promise: a statement that begins after watermark() returned w sees every message at or below w
-- that will ever exist. The value may be lower in a later call; what an earlier call promised stays true.
--
-- How it is kept. The sequence is read first, the announcements second. A writer that announced
-- before the announcements are read is found, and keeps the watermark below its bound. A writer that
-- announces later takes positions above the sequence value already read. A writer whose lock is released
-- has ended, and if it committed, a later snapshot sees its rows.
--
-- What would break it: reading in the same statement, or in a snapshot taken before; a standby, which
-- has no announcements; synchronous_commit = off or an asynchronous failover, where a visible commit can
-- be lost; and storing the bare value outside the database: after a crash the sequence may repeat values
-- that were not logged. A cursor is always the position of a row that was read.

-- The open announcements of other backends: the lowest position that each may write, and its pid.
create or replace function penstock.announcements(near bigint)
returns table (bound bigint, pid integer)
language sql volatile
as $$
  -- each key is the low 31 bits of a position within 2^30 of `near`
  select near + ((l.objid::bigint - near + 1073741824) & 2147483647) - 1073741824, l.pid
  from pg_catalog.pg_locks l
  where l.locktype = 'advisory'
    and l.classid = 1885693285
    and l.objsubid = 2
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
    and l.pid is distinct from pg_backend_pid()
$$;

-- The last position that was taken from the sequence, by any backend.
--
-- A plain SELECT is not enough: once in 32 values, while nextval() writes its log record, the row shows
-- the value 32 ahead for a moment. pg_sequence_last_value() waits for that, but returns null for a
-- sequence that was not used since it was created or restarted. There the SELECT is right, unless the
-- sequence was used in the meantime.
create or replace function penstock.last_position()
returns bigint language plpgsql volatile security definer set search_path = pg_catalog
as $$
declare
  last_position bigint :=
    pg_sequence_last_value('message_store.messages_global_position_seq'::regclass);
begin
  if last_position is null then
    select last_value - 1 into strict last_position
    from message_store.messages_global_position_seq;
    last_position := coalesce(
      pg_sequence_last_value('message_store.messages_global_position_seq'::regclass),
      last_position);
  end if;
  return last_position;
end
$$;

-- Refuse a position that was read before and is beyond the end of this log, which was truncated or
-- restored from a backup since.
create or replace function penstock.refuse_beyond_end("position" bigint, last_position bigint)
returns void language plpgsql
as $$
begin
  raise exception using
    errcode = 'PS009',
    message = format('the log ends at %s, before position %s, which was already read',
      last_position, refuse_beyond_end.position),
    detail = jsonb_build_object('position', refuse_beyond_end.position, 'end', last_position);
end
$$;

-- Return the position at which a reader resumes that has read everything before it; refuse it if the log
-- ends before that.
create or replace function penstock.next_position("position" bigint)
returns bigint language plpgsql volatile
as $$
declare
  last_position constant bigint := penstock.last_position();
begin
  if next_position.position - 1 > last_position then
    perform penstock.refuse_beyond_end(next_position.position - 1, last_position);
  end if;
  return next_position.position;
end
$$;

create or replace function penstock.refuse_standby()
returns bigint language plpgsql
as $$
begin
  raise exception using
    errcode = 'PS005',
    message = 'a standby has no record of open writers: read from the primary';
end
$$;

create or replace function penstock.watermark()
returns bigint language plpgsql volatile security definer set search_path = pg_catalog
as $$
declare
  last_position bigint;
  lowest_bound bigint;
begin
  if pg_is_in_recovery() then
    return penstock.refuse_standby();
  end if;

  last_position := penstock.last_position();
  select min(a.bound) into lowest_bound from penstock.announcements(last_position) a;
  return least(last_position, lowest_bound - 1);
end
$$;

-- The watermark of a reader that wants only what comes after a position. A statement that begins after
-- this returned w sees every message after the position, up to w, that will ever exist.
--
-- If each position up to the last one has a message that is visible, no writer can have any of them: then
-- the announcements need not be read, which takes longer than to read the few messages after the position.
create or replace function penstock.watermark_after("position" bigint)
returns bigint language plpgsql volatile security definer
set search_path = pg_catalog set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
  last_position bigint;
  distance bigint;
begin
  if pg_is_in_recovery() then
    return penstock.refuse_standby();
  end if;

  last_position := penstock.last_position();
  distance := last_position - watermark_after.position;
  if distance <= 20 and distance <= (
    select count(*) from message_store.messages m  -- visible in a snapshot that is taken now
    where m.global_position > watermark_after.position and m.global_position <= last_position
  ) then
    return last_position;
  end if;
  return penstock.watermark();
end
$$;

-- The transactions that hold the watermark back: those that have written and are still open, oldest first.
-- One that was prepared for a two-phase commit has no backend, and is named by its identifier.
create or replace function penstock.open_writers()
returns table (
  pid integer,
  role name,
  application_name text,
  state text,
  age interval,
  bound bigint
)
language sql volatile security definer set search_path = pg_catalog
as $$
  select a.pid, coalesce(s.usename, p.owner), coalesce(s.application_name, p.identifiers),
    coalesce(s.state, p.state), clock_timestamp() - coalesce(s.xact_start, p.since), a.bound
  from penstock.announcements(penstock.last_position()) a
  left join pg_stat_activity s on s.pid = a.pid
  left join lateral (
    -- the prepared transaction, or transactions, with that announcement
    select min(x.owner) as owner, string_agg(x.gid, ', ') as identifiers, min(x.prepared) as since,
      'prepared' as state
    from pg_prepared_xacts x
    join pg_locks own on own.transactionid = x.transaction and own.pid is null
    join pg_locks l on l.virtualtransaction = own.virtualtransaction and l.pid is null
    where x.database = current_database() and l.classid = 1885693285 and l.objsubid = 2
      and l.objid::bigint = a.bound & 2147483647
    having count(*) > 0
  ) p on a.pid is null
  order by a.bound
$$;
