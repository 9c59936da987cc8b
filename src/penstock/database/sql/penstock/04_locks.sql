-- The locks of writers.
--
-- The promise: writers to one stream exclude each other; writers to different streams do not wait for
-- each other, also in one category; and Message DB's lock on a category excludes all of them, as its
-- functions require.
--
-- How it is kept. A write takes its category's lock in shared mode (the key that Message DB locks) and its
-- stream's lock in exclusive mode. A call that writes to several streams locks the categories first and
-- then the streams, each in the order of their keys, so that two calls cannot deadlock. PostgreSQL's lock
-- table is small and shared by all sessions, so from 500 locks on a transaction locks whole categories
-- instead. That upgrades a lock which it may already hold in shared mode, and two such transactions would
-- deadlock: so it does not wait, but fails with an error that can be retried.
--
-- `penstock.locks` counts the transaction's locks. It counts a stream again when it is written again,
-- so the true number is looked up before anything is decided by it. The first write of a transaction,
-- often its only one, is not counted: its announcement counts as one lock.

create or replace function penstock.stream_key(stream_name varchar)
returns bigint language sql immutable parallel safe
as $$ select hashtextextended('-' || stream_name, 0) $$;  -- no category begins with a hyphen

create or replace function penstock.counted_locks()
returns integer language sql volatile
as $$
  select coalesce(
    nullif(current_setting('penstock.locks', true), '')::int,
    (current_setting('penstock.announced', true) = pg_current_xact_id_if_assigned()::text)::int,
    0)
$$;

-- The number of advisory locks that this transaction holds: exact once it is near the limit.
create or replace function penstock.held_locks()
returns integer language plpgsql volatile
as $$
declare
  held integer := penstock.counted_locks();
begin
  if held >= 500 then
    select count(*) into held
    from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 1 and l.pid = pg_backend_pid();
  end if;
  return held;
end
$$;

create or replace function penstock.lock_stream(stream_name varchar)
returns void language plpgsql
as $$
declare
  held integer := penstock.counted_locks();
  done text;
begin
  if held >= 500 then
    held := penstock.held_locks();
    if held >= 500 then
      perform penstock.upgrade_to_category(
        message_store.hash_64(message_store.category(stream_name)),
        message_store.category(stream_name));
      return;
    end if;
  end if;
  done := pg_advisory_xact_lock_shared(message_store.hash_64(message_store.category(stream_name)));
  done := pg_advisory_xact_lock(penstock.stream_key(stream_name));
  done := set_config('penstock.locks', (held + 1)::text, true);
end
$$;

-- The same for a call that writes next. A caller that does not write after all calls count_lock.
create or replace function penstock.lock_stream_for_write(stream_name varchar)
returns void language sql volatile
as $$
  select case
    when pg_current_xact_id_if_assigned() is not null then penstock.lock_stream(stream_name)
    -- never null: this orders the two locks
    when pg_advisory_xact_lock_shared(
      message_store.hash_64(message_store.category(stream_name))) is not null
    then pg_advisory_xact_lock(penstock.stream_key(stream_name))
  end
$$;

create or replace function penstock.count_lock()
returns void language sql volatile
as $$
  select set_config('penstock.locks', (penstock.counted_locks() + 1)::text, true),
    pg_current_xact_id()  -- assigned, so that the next lock is counted when it is taken
$$;

create or replace function penstock.upgrade_to_category(category_key bigint, category varchar)
returns void language plpgsql
as $$
begin
  if not pg_try_advisory_xact_lock(category_key) then
    raise exception using
      errcode = 'PS004',
      message = format(
        'this transaction writes to so many streams that it needs an exclusive lock on category %s, '
        'to which other transactions are writing', category),
      detail = jsonb_build_object('category', category),
      hint = 'Lock the category as the first statement of the transaction, or retry.';
  end if;
end
$$;

-- Exclude all other writers from these categories until the transaction ends. Call it first.
create or replace function penstock.lock_categories(categories varchar[])
returns void language plpgsql
as $$
declare
  nothing_locked constant boolean := penstock.counted_locks() = 0;
  wanted record;
begin
  for wanted in
    select distinct message_store.hash_64(c) as key, c as category from unnest(categories) c order by 1
  loop
    if nothing_locked then
      perform pg_advisory_xact_lock(wanted.key);
    else
      perform penstock.upgrade_to_category(wanted.key, wanted.category);
    end if;
  end loop;
end
$$;

-- Lock these streams in exclusive mode and these categories in shared mode. Call it first.
create or replace function penstock.lock_streams(categories varchar[], stream_names varchar[])
returns void language plpgsql
as $$
declare
  key bigint;
  done text;
begin
  foreach key in array array(
    select distinct message_store.hash_64(c) from unnest(categories) c order by 1)
  loop
    done := pg_advisory_xact_lock_shared(key);
  end loop;
  foreach key in array array(
    select distinct penstock.stream_key(s) from unnest(stream_names) s order by 1)
  loop
    done := pg_advisory_xact_lock(key);
  end loop;
  done := set_config('penstock.locks',
    (penstock.counted_locks() + cardinality(stream_names))::text, true);
end
$$;
