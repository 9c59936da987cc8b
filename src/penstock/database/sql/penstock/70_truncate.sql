-- TRUNCATE of the log. `truncate message_store.messages`, with or without `restart identity`, is how Message
-- DB's own scripts and many tests clear a store.
--
-- The promise: everything that refers to positions of the log is reset in the same transaction. Declarations
-- and names stay; so do the outbox and its joins, which do not refer to the log.

create or replace function penstock.forget_log()
returns trigger language plpgsql security definer set search_path = pg_catalog
as $$
begin
  -- the attribute index, and what groups have routed and handled. Groups keep their names and status; the
  -- next claim configures them again. An open claim becomes stale, since its partition is deleted.
  begin
    truncate penstock.message_attributes;
  exception
    when object_in_use then  -- the same statement truncates it
      delete from penstock.message_attributes;
  end;
  perform penstock.forget_group_positions();
  -- declared types stay; one that was being indexed has nothing left to index
  update penstock.message_types t set filled_to = 0, fill_until = null, archive_filled_to = null
  where t.filled_to is not null;

  -- consumers have no position, as before their first save: the next save of a running one is refused
  delete from penstock.consumer_positions;
  -- sessions begin at offset 0. The epoch rises, so that an open session does not continue from an offset of
  -- the truncated log.
  update penstock.sessions s
  set next_offset = 0, epoch = s.epoch + 1, updated_at = clock_timestamp();

  -- processors start from scratch, since their attempts were in the log; so do the cursors of sources, whose
  -- messages were. The generation rises, so that a step that is running is not committed.
  update penstock.processors p
  set generation = p.generation + 1, start_positions = '{}', rebuilding = false, error = null, error_at = null;
  with gone as (
    -- the progress of each processor
    delete from penstock.processor_progress p returning p.pipeline, p.processor, p.version
  )
  insert into penstock.processor_progress (pipeline, processor, version)
  select g.pipeline, g.processor, g.version + 1 from gone g;
  -- deliveries were truncated with the log, and can be published again; so with their remaining slices
  delete from penstock.deliveries;
  delete from penstock.staged_slices;
  -- decisions begin with the initial state; a snapshot that is saved too late has the old incarnation
  delete from penstock.decider_snapshots;
  -- retention had removed positions of the truncated log
  delete from penstock.retentions;
  -- the archive held messages of the truncated log: the next run makes another
  perform penstock.forget_archive();

  -- if this transaction writes later, it announces again: positions may start again
  perform set_config('penstock.announced', '', true);
  return null;
end
$$;

create or replace trigger penstock_forget_log
  after truncate on message_store.messages
  for each statement execute function penstock.forget_log();

alter table message_store.messages enable always trigger penstock_forget_log;
