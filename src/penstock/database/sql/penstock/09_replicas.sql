-- Reading many streams on a standby, complete up to the primary's watermark.
--
-- The promise: a statement that begins after read_at(point) returned, in the same transaction, sees every message
-- at or below the watermark of that point that will ever exist.
--
-- How it is kept. The primary is asked for the watermark first and for the end of the write-ahead log second:
-- read_point(). A message at or below the watermark that will ever exist is visible there by then, so the record
-- of its commit is before that end. The standby has replayed all of it, or read_at() refuses. The location is
-- that of the last record inserted, not flushed: with synchronous_commit = off a commit is visible before it is
-- flushed.
--
-- That the standby replays the log of this primary, and not of another or of a fork, shows in its messages: it
-- has the last message of the point under the same id. The client compares more, once per connection: cluster().
--
-- A transaction above READ COMMITTED has one snapshot, taken by its first statement. How far the standby has replayed
-- now says nothing about that snapshot, so there read_at() accepts only a replay that a READ COMMITTED transaction
-- of the same session observed. That was another transaction, which ended before this one began: so the snapshot
-- is newer than the replay. Such a caller calls read_at() before BEGIN until it succeeds, and again after BEGIN. The
-- observation is kept by the session and not by the client, so behind a pooler it is one of the server that is
-- read. It stays true while the session lives, since replay does not go back.
--
-- What would break it: reading in the statement that calls read_at(), or in a snapshot taken before; waiting for
-- the replay inside a statement, whose snapshot replay may have to wait for; and following a promoted standby. A
-- transaction in which read_at() succeeded is bounded by its point, even if the standby is promoted meanwhile.

-- On the primary: up to where a standby may be read, and from which location of the write-ahead log on. With
-- `resumes_at`, also refuse a reader that has read everything before that position if the log ends before it.
create or replace function penstock.read_point(resumes_at bigint default null)
returns table (watermark bigint, last_position bigint, last_id uuid, lsn pg_lsn)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  if resumes_at is not null then
    perform penstock.next_position(resumes_at);
  end if;
  watermark := penstock.watermark();
  select m.global_position, m.id into read_point.last_position, read_point.last_id
  from message_store.messages m
  where m.global_position <= read_point.watermark
  order by m.global_position desc limit 1;
  lsn := pg_current_wal_insert_lsn();
  return next;
end
$$;

-- On the primary: see to it that the write-ahead log up to a location is sent to standbys. A record that no commit
-- follows (of an open transaction, of one that was rolled back, of a page that was pruned) stays unflushed, and so
-- unsent, for many seconds.
create or replace function penstock.flush_to(lsn pg_lsn)
returns void language plpgsql volatile
as $$
begin
  if pg_current_wal_flush_lsn() < lsn then
    perform set_config('synchronous_commit', 'local', true);
    perform pg_logical_emit_message(true, 'penstock', '');
  end if;
end
$$;

create or replace function penstock.refuse_replica(reason text)
returns void language plpgsql
as $$
begin
  raise exception using errcode = 'PS011', message = reason,
    hint = 'Pass the address of a streaming standby of this primary as replica.';
end
$$;

-- On a standby: let the statements that follow in this transaction read up to the watermark of a point, or refuse.
create or replace function penstock.read_at(
  watermark bigint, last_position bigint, last_id uuid, lsn pg_lsn)
returns void language plpgsql volatile
as $$
declare
  is_fresh constant boolean :=  -- each statement reads a snapshot of its own
    current_setting('transaction_isolation') in ('read committed', 'read uncommitted');
  observed constant pg_lsn := nullif(current_setting('penstock.observed_replay', true), '')::pg_lsn;
  replayed constant pg_lsn := pg_last_wal_replay_lsn();
  found_id uuid;
begin
  if not pg_is_in_recovery() then
    perform penstock.refuse_replica('it is not a standby, or was promoted');
  elsif not is_fresh and (observed >= lsn) is not true then
    raise exception using errcode = 'PS003',
      message = format(
        'a %s transaction reads an old snapshot', current_setting('transaction_isolation')),
      hint = 'Call penstock.read_at() with the same point before BEGIN, too.';
  elsif (replayed >= lsn) is not true then
    raise exception using errcode = 'PS010',
      message = format('it has replayed the write-ahead log to %s, before %s', replayed, lsn),
      detail = jsonb_build_object('is_waiting', true);
  end if;

  found_id := (
    select m.id from message_store.messages m where m.global_position = read_at.last_position);
  if found_id <> last_id then
    perform penstock.refuse_replica(format('its message %s is %s, and that of the primary %s: it '
      'replays another log, or a fork of this one', last_position, found_id, last_id));
  elsif last_id is not null and found_id is null then  -- removed or archived since then, or it is a fork
    raise exception using errcode = 'PS010',
      message = format('it has replayed the write-ahead log to %s, and has no message %s',
        replayed, last_position);
  end if;
  if is_fresh then
    perform set_config('penstock.observed_replay', replayed::text, false);
  end if;
  perform set_config('penstock.replica_watermark', watermark::text, true);
end
$$;

-- Which cluster this is: its identifier and its timeline as far as this role may know them, the log's identity,
-- and whether the server is a standby. The timeline that a standby reports may be an older one.
create or replace function penstock.cluster()
returns table (system_identifier bigint, timeline integer, log_id uuid, is_standby boolean)
language plpgsql volatile
as $$
begin
  is_standby := pg_is_in_recovery();
  log_id := (select l.id from penstock.log_identity() l);
  begin
    system_identifier := (select s.system_identifier from pg_control_system() s);
    if is_standby then
      timeline := greatest(
        (select c.timeline_id from pg_control_checkpoint() c),
        (select r.min_recovery_end_timeline from pg_control_recovery() r),
        (select w.received_tli from pg_stat_wal_receiver w));
    else
      timeline :=
        ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer;
    end if;
  exception when insufficient_privilege then
    null;
  end;
  return next;
end
$$;
