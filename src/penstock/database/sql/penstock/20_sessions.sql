-- Sessions: a consumer of one stream, with the offset of the record that it reads next.
--
-- A queue is one stream, and a record's offset is its position there. Positions are assigned under
-- the stream's lock, which is held until the commit: so they have no gaps, they become visible in
-- order, and a session needs no watermark. Only retention makes a gap, at the beginning.
--
-- The promise: of the sessions that were opened with one consumer id only the newest moves the
-- offset. Calls of an older one are refused, and change nothing.
--
-- How it is kept. Opening a session raises the epoch of its row and returns it; every later call
-- passes its epoch, and every function that stores an offset locks the row first and compares the epoch.
-- A concurrent opening waits for that lock: either the offset was stored first, and the new session starts
-- after it, or the call finds another epoch and raises.
--
-- Every call can be repeated with the same arguments, as by a client whose connection broke before the
-- answer arrived: the client passes the offset that it reads next, so a repeated poll returns the same
-- record.
--
-- A session whose row was removed is refused, too. The first epoch of a row is random: so a row that is removed
-- and inserted again, or inserted by a transaction that is rolled back, never has an epoch twice.
--
-- What would break it: removing the last message of a stream, since its positions would start again.

-- A versioned row, see 01_schema.sql.
create table if not exists penstock.sessions (
  stream_name text not null,
  consumer_id text not null,
  version bigint not null default 0,
  next_offset bigint not null default 0 check (next_offset >= 0),
  epoch bigint not null default 0,         -- of the newest session; rises with each
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (stream_name, consumer_id, version)
);

-- The newest version of a consumer's row, null if there is none.
create or replace function penstock.latest_session(
  stream_name varchar, consumer_id varchar, locked boolean)
returns penstock.sessions language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
#variable_conflict use_column
declare
  latest penstock.sessions;
begin
  loop
    select s.* into latest from penstock.sessions s
    where s.stream_name = latest_session.stream_name and s.consumer_id = latest_session.consumer_id
    order by s.stream_name desc, s.consumer_id desc, s.version desc limit 1;
    exit when not found or not locked;
    select s.* into latest from penstock.sessions s
    where s.stream_name = latest.stream_name and s.consumer_id = latest.consumer_id
      and s.version = latest.version
    for update;
    exit when found;  -- else another transaction has replaced it
  end loop;
  return latest;
end
$$;

-- Replace the version that the caller has locked, or insert the first. False if another transaction did.
create or replace function penstock.replace_session(
  old penstock.sessions, stream_name varchar, consumer_id varchar, next_offset bigint, epoch bigint)
returns boolean language plpgsql volatile
as $$
#variable_conflict use_column
begin
  delete from penstock.sessions s
  where s.stream_name = old.stream_name and s.consumer_id = old.consumer_id
    and s.version = old.version;
  insert into penstock.sessions
    (stream_name, consumer_id, version, next_offset, epoch, created_at, updated_at)
  values (replace_session.stream_name, replace_session.consumer_id, coalesce(old.version + 1, 0),
    replace_session.next_offset, replace_session.epoch,
    coalesce(old.created_at, now()), clock_timestamp())
  on conflict (stream_name, consumer_id, version) do nothing;
  return found;
end
$$;

-- The newest versions of all rows, by a skip scan of the index.
create or replace function penstock.all_sessions()
returns setof penstock.sessions language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  with recursive latest as (
    -- the newest row of the last consumer id, and then that of each consumer id before
    (select s.* from penstock.sessions s
     order by s.stream_name desc, s.consumer_id desc, s.version desc limit 1)
    union all
    select earlier.* from latest
    cross join lateral (
      select s.* from penstock.sessions s
      where (s.stream_name, s.consumer_id) < (latest.stream_name, latest.consumer_id)
      order by s.stream_name desc, s.consumer_id desc, s.version desc limit 1
    ) earlier
  )
  select latest.* from latest
$$;

-- The newest versions of a stream's rows, in the same way. The caller has the settings of all_sessions().
create or replace function penstock.sessions_of(stream_name text)
returns setof penstock.sessions language sql stable
as $$
  with recursive latest as (
    -- the newest row of the stream's last consumer id, and then that of each consumer id before
    (select s.* from penstock.sessions s
     where s.stream_name = sessions_of.stream_name
     order by s.stream_name desc, s.consumer_id desc, s.version desc limit 1)
    union all
    select earlier.* from latest
    cross join lateral (
      select s.* from penstock.sessions s
      where s.stream_name = latest.stream_name and s.consumer_id < latest.consumer_id
      order by s.stream_name desc, s.consumer_id desc, s.version desc limit 1
    ) earlier
  )
  select latest.* from latest
$$;

create or replace function penstock.first_epoch()
returns bigint language sql volatile
as $$ select hashtextextended(gen_random_uuid()::text, 0) & 4611686018427387903 $$;

-- Open a session: fence the open one, and return the offset to read next.
create or replace function penstock.open_session(stream_name varchar, consumer_id varchar)
returns table (epoch bigint, next_offset bigint) language plpgsql
as $$
#variable_conflict use_variable
declare
  old penstock.sessions;
begin
  loop
    old := penstock.latest_session(stream_name, consumer_id, true);
    epoch := coalesce(old.epoch, penstock.first_epoch()) + 1;
    next_offset := coalesce(old.next_offset, 0);
    exit when penstock.replace_session(old, stream_name, consumer_id, next_offset, epoch);
  end loop;
  return next;
end
$$;

-- Return the record at `next_offset`, or the oldest after it if retention has removed that one; no
-- row if there is none yet. With `auto_commit` the offset after it is stored in the same call. If the archive may
-- have the record, the row is a mark, see 23_archive.sql, and nothing is stored.
create or replace function penstock.poll_session(
  stream_name varchar,
  consumer_id varchar,
  epoch bigint,
  next_offset bigint,
  auto_commit boolean
)
returns setof message_store.message language plpgsql
as $$
#variable_conflict use_column
declare
  record message_store.message;
begin
  select m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
    m.data::varchar, m.metadata::varchar, m.time
  into record
  from message_store.messages m
  where m.stream_name = poll_session.stream_name and m.position >= poll_session.next_offset
  order by m.position
  limit 1;

  if record.position > poll_session.next_offset
    and exists (select from penstock.archive_segments)
  then
    return query select * from penstock.archive_mark(
      poll_session.stream_name, poll_session.next_offset, null);
    if found then
      return;
    end if;
  end if;

  if record.position is not null and poll_session.auto_commit then
    perform penstock.store_offset(
      poll_session.stream_name, poll_session.consumer_id, poll_session.epoch, record.position + 1);
  else
    perform penstock.committed_offset(
      poll_session.stream_name, poll_session.consumer_id, poll_session.epoch);
  end if;

  if record.position is not null then
    return next record;
  else
    perform penstock.refuse_beyond_tail(poll_session.stream_name, poll_session.next_offset);
  end if;
end
$$;

-- Commit: everything before `next_offset` is handled. A lower offset than the stored one is ignored,
-- unless `rewind` is set, after a seek. Returns the stored offset.
create or replace function penstock.commit_session(
  stream_name varchar,
  consumer_id varchar,
  epoch bigint,
  next_offset bigint,
  rewind boolean default false
)
returns bigint language plpgsql
as $$
begin
  perform penstock.refuse_beyond_tail(
    commit_session.stream_name, commit_session.next_offset, commit_session.next_offset - 1);
  return penstock.store_offset(
    commit_session.stream_name, commit_session.consumer_id, commit_session.epoch,
    commit_session.next_offset, commit_session.rewind);
end
$$;

-- Seek to an offset (null: to the tail). Returns the offset of the first record at or after it, and how
-- many records in between were removed. `persist` stores the offset. If the archive may have a record before that
-- one, `archived` is returned and nothing is stored: the client looks there, and passes the offset of the oldest.
create or replace function penstock.seek_session(
  stream_name varchar,
  consumer_id varchar,
  epoch bigint,
  wanted bigint,
  persist boolean,
  oldest bigint default null
)
returns table (next_offset bigint, skipped bigint, archived boolean) language plpgsql
as $$
begin
  archived := false;
  perform penstock.committed_offset(
    seek_session.stream_name, seek_session.consumer_id, seek_session.epoch);

  if seek_session.wanted is null then
    next_offset := penstock.tail(seek_session.stream_name);
  elsif seek_session.oldest is not null then
    next_offset := seek_session.oldest;
    perform penstock.refuse_beyond_tail(seek_session.stream_name, next_offset);
  else
    next_offset := coalesce((
      select m.position from message_store.messages m
      where m.stream_name = seek_session.stream_name and m.position >= seek_session.wanted
      order by m.position
      limit 1), seek_session.wanted);
    perform penstock.refuse_beyond_tail(seek_session.stream_name, next_offset);
    archived := exists (
      select from penstock.archive_mark(seek_session.stream_name, seek_session.wanted, null));
  end if;
  skipped := next_offset - coalesce(seek_session.wanted, next_offset);

  if seek_session.persist and not archived then
    perform penstock.store_offset(
      seek_session.stream_name, seek_session.consumer_id, seek_session.epoch, next_offset, true);
  end if;
  return next;
end
$$;

-- The stored offset of a session that is still the newest of its consumer id.
create or replace function penstock.committed_offset(
  stream_name varchar, consumer_id varchar, epoch bigint)
returns bigint language plpgsql
as $$
declare
  found_row constant penstock.sessions := penstock.latest_session(stream_name, consumer_id, false);
  stored bigint;
begin
  if found_row.epoch = committed_offset.epoch then
    stored := found_row.next_offset;
  end if;
  if stored is null then
    perform penstock.refuse_fenced(committed_offset.stream_name, committed_offset.consumer_id);
  end if;
  return stored;
end
$$;

-- Store a consumer's offset without a session. It never moves back, nor beyond the tail.
create or replace function penstock.commit_offset(
  stream_name varchar, consumer_id varchar, next_offset bigint)
returns bigint language plpgsql
as $$
declare
  old penstock.sessions;
  stored bigint;
begin
  perform penstock.refuse_beyond_tail(commit_offset.stream_name, commit_offset.next_offset);
  loop
    old := penstock.latest_session(stream_name, consumer_id, true);
    stored := greatest(old.next_offset, commit_offset.next_offset);
    exit when penstock.replace_session(
      old, stream_name, consumer_id, stored, coalesce(old.epoch, penstock.first_epoch()));
  end loop;
  return stored;
end
$$;

-- The only place where a session's offset is stored.
create or replace function penstock.store_offset(
  stream_name varchar,
  consumer_id varchar,
  epoch bigint,
  next_offset bigint,
  rewind boolean default false
)
returns bigint language plpgsql
as $$
declare
  old constant penstock.sessions := penstock.latest_session(stream_name, consumer_id, true);
  stored bigint;
begin
  if old.epoch is distinct from store_offset.epoch then
    perform penstock.refuse_fenced(store_offset.stream_name, store_offset.consumer_id);
  end if;
  stored := case when rewind then store_offset.next_offset
    else greatest(old.next_offset, store_offset.next_offset) end;
  perform penstock.replace_session(old, stream_name, consumer_id, stored, old.epoch);
  return stored;
end
$$;

-- The offset that the next record of a stream will get.
create or replace function penstock.tail(stream_name varchar)
returns bigint language plpgsql
as $$
begin
  return coalesce((
    select max(m.position) + 1 from message_store.messages m
    where m.stream_name = tail.stream_name), 0);
end
$$;

-- Refuse an offset beyond the tail. `asked` is the offset that the caller passed, for the error.
create or replace function penstock.refuse_beyond_tail(
  stream_name varchar, next_offset bigint, asked bigint default null)
returns void language plpgsql
as $$
declare
  tail constant bigint := penstock.tail(refuse_beyond_tail.stream_name);
  named constant bigint := coalesce(refuse_beyond_tail.asked, refuse_beyond_tail.next_offset);
begin
  if refuse_beyond_tail.next_offset > tail then
    raise exception using
      errcode = 'PS021',
      message = format('offset %s of %s is beyond the tail, %s',
        named, refuse_beyond_tail.stream_name, tail),
      detail = jsonb_build_object(
        'stream_name', refuse_beyond_tail.stream_name, 'offset', named, 'tail', tail);
  end if;
end
$$;

create or replace function penstock.refuse_fenced(stream_name varchar, consumer_id varchar)
returns void language plpgsql
as $$
begin
  raise exception using
    errcode = 'PS020',
    message = format('another session was opened on %s with consumer id %s, or it was removed',
      refuse_fenced.stream_name, refuse_fenced.consumer_id),
    detail = jsonb_build_object(
      'stream_name', refuse_fenced.stream_name, 'consumer_id', refuse_fenced.consumer_id);
end
$$;

-- Consumers of queues, by queue and id, after (`after_stream`, `after_id`), at most `page_size`; or, if
-- `of_stream` is given, that one: the offset it reads next, the queue's tail, its lag in records (counted up
-- to `most`), and when the first of them was written.
create or replace function penstock.list_sessions(
  most bigint default 10000, after_stream varchar default '', after_id varchar default '',
  page_size bigint default 1000, of_stream varchar default null, of_consumer varchar default null)
returns table (
  stream_name text, consumer_id text, next_offset bigint, tail bigint, behind bigint,
  oldest_waiting timestamptz, updated_at timestamptz)
language sql volatile
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  with chosen as materialized (
    (select s.* from penstock.all_sessions() s
     where of_stream is null and (s.stream_name, s.consumer_id) > (after_stream, after_id)
     order by s.stream_name, s.consumer_id limit page_size)
    union all
    select s.* from penstock.latest_session(of_stream, of_consumer, false) s
    where of_stream is not null and s.stream_name is not null
  )
  select s.stream_name, s.consumer_id, s.next_offset, t.tail,
    coalesce(least(most, t.tail - first.position), 0), first.time at time zone 'utc', s.updated_at
  from chosen s
  cross join lateral (select penstock.tail(s.stream_name::varchar) as tail offset 0) t
  left join lateral (
    -- the first record that it has not read; after it there are no gaps, since retention removes the oldest
    select m.position, m.time from message_store.messages m
    where m.stream_name = s.stream_name and m.position >= s.next_offset
    order by m.position limit 1
  ) first on true
  order by s.stream_name, s.consumer_id
$$;

-- Move a consumer of a queue to an offset: for operators, not for sessions. An open session is fenced.
-- Returns the offset before; null if there is no such consumer.
create or replace function penstock.move_session(
  stream_name varchar, consumer_id varchar, next_offset bigint)
returns bigint language plpgsql
as $$
declare
  old penstock.sessions;
begin
  perform penstock.refuse_beyond_tail(stream_name, next_offset);
  old := penstock.latest_session(stream_name, consumer_id, true);
  if old.version is not null then
    perform penstock.replace_session(old, stream_name, consumer_id, next_offset, old.epoch + 1);
  end if;
  return old.next_offset;
end
$$;

-- Remove a consumer of a queue. An open session is refused from then on; the next one begins at offset 0.
-- Returns whether there was such a consumer.
create or replace function penstock.remove_session(stream_name varchar, consumer_id varchar)
returns boolean language plpgsql
as $$
declare
  old constant penstock.sessions := penstock.latest_session(stream_name, consumer_id, true);
begin
  delete from penstock.sessions s
  where s.stream_name = old.stream_name and s.consumer_id = old.consumer_id and s.version = old.version;
  return found;
end
$$;

-- The offset of the first record that was written at or after a moment; the tail, if there is none.
create or replace function penstock.offset_since(stream_name varchar, moment timestamptz)
returns bigint language sql volatile
as $$
  select coalesce(
    (select m.position from message_store.messages m
     where m.stream_name = offset_since.stream_name
       and m.time >= offset_since.moment at time zone 'utc'
     order by m.position
     limit 1),
    penstock.tail(offset_since.stream_name))
$$;
