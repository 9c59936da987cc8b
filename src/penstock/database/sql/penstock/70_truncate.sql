-- An emptied log. `truncate message_store.messages`, with or without `restart identity`, is how Message DB's
-- own scripts and many tests clear a store.
--
-- The promise: after it, whatever points into the log is as new, in the same transaction. What was declared
-- or named by people stays; so does work in the outbox and its joins, which do not point into the log.

create or replace function penstock.forget_log()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
begin
  -- the attribute index, and what groups have routed and handled: all of it are positions. Groups keep their
  -- names and whether they are stopped; the next claim says again what they handle. A claim in flight becomes
  -- stale, since its partition is gone.
  begin
    truncate penstock.message_attributes;
  exception
    when object_in_use then  -- somebody truncates it in the same statement
      delete from penstock.message_attributes;
  end;
  perform penstock.forget_group_positions();
  -- declared types stay declared; one that was being filled in has nothing left to fill
  update penstock.message_types t set filled_to = 0, fill_until = null where t.filled_to is not null;

  -- consumers have no position, as before their first save: one that still runs is refused its next save
  delete from penstock.consumer_positions;
  -- sessions begin at offset 0. The epoch rises, so that one that is open does not go on from an offset of
  -- the log that is gone.
  update penstock.sessions s
  set next_offset = 0, epoch = s.epoch + 1, updated_at = clock_timestamp();

  -- processors begin again. Their attempts were in the log. What a source brought is gone with the log, so
  -- its cursor goes, too. The generation rises: a step in flight is given up.
  update penstock.processors p
  set generation = p.generation + 1, start_positions = '{}', rebuilding = false, error = null, error_at = null;
  with gone as (
    -- how far each processor was
    delete from penstock.processor_progress p returning p.pipeline, p.processor, p.version
  )
  insert into penstock.processor_progress (pipeline, processor, version)
  select g.pipeline, g.processor, g.version + 1 from gone g;
  -- what was delivered is gone, and may be delivered again; what was left of a delivery goes with it
  delete from penstock.deliveries;
  delete from penstock.staged_slices;
  -- what retention had removed lay before positions that are no more
  delete from penstock.retentions;

  -- a transaction that goes on to write announces itself again: positions may have started anew
  perform set_config('penstock.announced', '', true);
  return null;
end
$$;

create or replace trigger penstock_forget_log
  after truncate on message_store.messages
  for each statement execute function penstock.forget_log();

alter table message_store.messages enable always trigger penstock_forget_log;
