-- Renamed columns, tables and functions: claim cursors, queue positions, backfills, start positions.

drop view if exists penstock.tailers_at_work, penstock.active_tailers, penstock.tailers;

-- functions that have another name, other argument names or other result columns
do $$
declare
  former regprocedure;
begin
  for former in
    select p.oid::regprocedure from pg_proc p
    where p.pronamespace = to_regnamespace('penstock') and p.proname in (
      'agreeing_message', 'came_as', 'change_state', 'end_leases', 'enrol_in_group', 'find_next',
      'floor_of', 'give_back', 'held_state', 'is_old', 'lock_first', 'move_steps', 'narrow_group',
      'news_head', 'pass_over', 'position_row', 'progress_of', 'raise_floor', 'refuse_part',
      'refuse_ring', 'renew_floors', 'replace_progress', 'route_again', 'save_progress',
      'session_row', 'state_of', 'states_beside', 'tell_partitions', 'turn',
      'claim_outbox', 'open_processor', 'restart_processor')
  loop
    execute format('drop function %s', former);
  end loop;
end
$$;

-- claims make a new cursor, from the start of the queue
drop table if exists penstock.group_floors;

do $$
declare
  renamed record;
begin
  for renamed in
    select a.attrelid::regclass as relation, n.former, n.name, c.conname
    from (values
      ('group_progress', 'late', 'backfills'),
      ('group_progress', 'looked_at', 'caught_up_at'),
      ('partition_states', 'turn', 'queue_position'),
      ('processors', 'floors', 'start_positions')
    ) as n(relation, former, name)
    join pg_attribute a on a.attrelid = to_regclass('penstock.' || n.relation)
      and a.attname = n.former and not a.attisdropped
    left join pg_constraint c  -- since PostgreSQL 18, where NOT NULL is one
      on c.conrelid = a.attrelid and c.conname = n.relation || '_' || n.former || '_not_null'
  loop
    execute format('alter table %s rename column %I to %I', renamed.relation, renamed.former,
      renamed.name);
    if renamed.conname is not null then
      execute format('alter table %s rename constraint %I to %I', renamed.relation, renamed.conname,
        replace(renamed.conname, renamed.former, renamed.name));
    end if;
  end loop;
end
$$;
