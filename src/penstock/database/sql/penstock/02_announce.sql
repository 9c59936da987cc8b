-- Every writer announces where it may write, before it takes its first position.
--
-- The promise: while a transaction may still commit a message at position p, a shared advisory lock
-- with a key at or below p is held. penstock.watermark() reads those locks.
--
-- How it is kept. The statement trigger runs before any row's nextval(). It reads the sequence's
-- next value, locks it, and only then can a row draw a position, which is that value or a higher one.
-- The lock goes when the transaction has ended, and PostgreSQL makes a commit visible before it
-- releases locks. `penstock.announced` remembers transaction and bound, so that a transaction
-- announces once; a rollback to a savepoint undoes setting and lock together. The transaction's id
-- is in the setting, so that a value left behind by somebody's SET does no harm.
--
-- Setting and lock are made in a block with an exception clause, which is a subtransaction: so both
-- belong to the transaction at its present savepoint, and nothing else. A lock taken straight from a
-- query belongs to the query's cursor, and if that fails within a later savepoint the lock is gone
-- while the rows it had written stay.
--
-- What would break it: a position that did not come from the sequence in this statement (a sequence
-- cache, a position made by hand). The row trigger refuses that; `penstock init` refuses a cache.
--
-- 1885693285 is our class of two-part advisory locks: 'pens' read as a number.

create or replace function penstock.announce()
returns trigger language plpgsql
as $$
declare
  transaction_id constant text := pg_current_xact_id()::text;
  bound bigint;
  done text;
begin
  if split_part(current_setting('penstock.announced', true), ':', 1)
      is distinct from transaction_id then
    bound := pg_sequence_last_value('message_store.messages_global_position_seq'::regclass) + 1;
    if bound is null then  -- not used since it was made or restarted: see penstock.last_position()
      select last_value into strict bound from message_store.messages_global_position_seq;
      bound := coalesce(
        pg_sequence_last_value('message_store.messages_global_position_seq'::regclass) + 1, bound);
    end if;
    begin
      done := pg_advisory_xact_lock_shared(1885693285, (bound & 2147483647)::int);
      done := set_config('penstock.announced', transaction_id || ':' || bound, true);
    exception
      when no_data_found then raise;
    end;
  end if;
  return null;
end
$$;

create or replace function penstock.refuse_unannounced_position()
returns trigger language plpgsql
as $$
begin
  raise exception using
    errcode = 'PS006',
    message = format(
      'global position %s is below %s, where this transaction announced to write',
      new.global_position, split_part(current_setting('penstock.announced', true), ':', 2)),
    detail = jsonb_build_object('global_position', new.global_position),
    hint = 'Let the sequence message_store.messages_global_position_seq number the messages, '
      'with a cache of 1.';
end
$$;

create or replace trigger penstock_announce
  before insert on message_store.messages
  for each statement execute function penstock.announce();

-- also for those who write with session_replication_role = replica
alter table message_store.messages enable always trigger penstock_announce;

create or replace trigger penstock_refuse_unannounced_position
  after insert on message_store.messages
  for each row
  when (new.global_position
    < split_part(current_setting('penstock.announced', true), ':', 2)::bigint)
  execute function penstock.refuse_unannounced_position();
