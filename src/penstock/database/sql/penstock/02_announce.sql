-- Every writer announces the lowest position that it may write, before it takes its first one.
--
-- The promise: while a transaction may still commit a message at position p, a shared advisory lock
-- with a key at or below p is held. penstock.watermark() reads those locks.
--
-- How it is kept. The statement trigger runs before any row's nextval(). It reads the sequence's
-- next value and locks it; only then can a row take a position, which is that value or a higher one.
-- The lock is released when the transaction has ended, and PostgreSQL makes a commit visible before it
-- releases locks. `penstock.announced` holds the id of the transaction and `penstock.bound` its bound, so
-- that a transaction announces once; a rollback to a savepoint undoes settings and lock together. Since
-- the transaction's id is compared, a value left over from a SET does no harm. The bound is a setting of
-- its own because the condition of the row trigger is parsed for each statement: a short one keeps writes
-- cheap.
--
-- Settings and lock are made in a block with an exception clause, which is a subtransaction: so both
-- belong to the transaction at its present savepoint. A lock taken directly in a query belongs to the
-- query's portal; if that fails within a later savepoint, the lock is released while the rows that it
-- has written stay.
--
-- What would break it: a position that did not come from the sequence in this statement (a sequence
-- cache, an explicit position). The row trigger refuses that; `penstock init` refuses a cache.
--
-- 1885693285 is the class of our two-part advisory locks: 'pens' read as a number.

create or replace function penstock.announce()
returns trigger language plpgsql
as $$
declare
  bound bigint;
  done text;
begin
  if current_setting('penstock.announced', true) is distinct from pg_current_xact_id()::text then
    bound := pg_sequence_last_value('message_store.messages_global_position_seq'::regclass) + 1;
    if bound is null then  -- not used since it was created or restarted: see penstock.last_position()
      select last_value into strict bound from message_store.messages_global_position_seq;
      bound := coalesce(
        pg_sequence_last_value('message_store.messages_global_position_seq'::regclass) + 1, bound);
    end if;
    begin
      done := pg_advisory_xact_lock_shared(1885693285, (bound & 2147483647)::int);
      done := set_config('penstock.bound', bound::text, true)
        || set_config('penstock.announced', pg_current_xact_id()::text, true);
    exception
      when no_data_found then raise;
    end;
  end if;
  return null;
end
$$;

create or replace function penstock.refuse_position(global_position bigint)
returns void language plpgsql
as $$
begin
  raise exception using
    errcode = 'PS006',
    message = format(
      'global position %s is below %s, the lowest position that this transaction announced',
      global_position, current_setting('penstock.bound')),
    detail = jsonb_build_object('global_position', global_position),
    hint = 'Let the sequence message_store.messages_global_position_seq number the messages, '
      'with a cache of 1.';
end
$$;

create or replace function penstock.refuse_unannounced_position()
returns trigger language plpgsql
as $$
begin
  perform penstock.refuse_position(new.global_position);
  return null;
end
$$;

-- For logical replication: refuse a position below the announced bound, and advance the sequence past the
-- replicated positions. It is advanced by nextval(), which never moves it back.
create or replace function penstock.place_applied()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
declare
  ahead bigint;
begin
  if new.global_position < current_setting('penstock.bound')::bigint then
    perform penstock.refuse_position(new.global_position);
  end if;
  loop
    ahead := new.global_position - penstock.last_position();
    exit when ahead <= 0;
    perform nextval('message_store.messages_global_position_seq'::regclass)
    from generate_series(1, ahead);
  end loop;
  return null;
end
$$;

create or replace trigger penstock_announce
  before insert on message_store.messages
  for each statement execute function penstock.announce();

create or replace trigger penstock_refuse_unannounced_position
  after insert on message_store.messages
  for each row
  when (new.global_position < nullif(current_setting('penstock.bound', true), '')::bigint)
  execute function penstock.refuse_unannounced_position();

-- Logical replication applies rows without firing statement triggers. There, and wherever
-- session_replication_role is replica, these triggers run for each row.
create or replace trigger penstock_announce_applied
  after insert on message_store.messages
  for each row execute function penstock.announce();

create or replace trigger penstock_place_applied
  after insert on message_store.messages
  for each row execute function penstock.place_applied();

alter table message_store.messages
  enable always trigger penstock_announce,
  enable always trigger penstock_refuse_unannounced_position,
  enable replica trigger penstock_announce_applied,
  enable replica trigger penstock_place_applied;
