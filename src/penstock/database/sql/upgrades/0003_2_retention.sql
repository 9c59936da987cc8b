-- Retention names who holds it back, and groups can be removed.

-- views with new columns, and functions with other results
drop view if exists penstock.active_tailers, penstock.tailers;
drop function if exists penstock.slowest_consumer(varchar, varchar[]);
drop function if exists penstock.messages_after(varchar, bigint, bigint, bigint, bigint);
drop function if exists penstock.remove_messages(
  varchar, bigint, bigint, timestamptz, varchar[], boolean, bigint, bigint);

-- when a group's progress was stored; unknown for what was stored before
alter table if exists penstock.group_progress add column if not exists updated_at timestamptz;
alter table if exists penstock.group_progress alter column updated_at set default now();
