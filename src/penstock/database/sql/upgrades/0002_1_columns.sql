-- The columns that 0.1 added over time, and the functions whose arguments or results changed.
--
-- 0.1 called every schema version 1, from its first commit on. So each statement has to do for all of
-- them: a table may not be there yet, a column may be there already.

alter table if exists penstock.installations
  add column if not exists upgrades text[] not null default '{}',
  add column if not exists parts jsonb not null default '{}';

alter table if exists penstock.consumer_positions
  add column if not exists save_id uuid;

alter table if exists penstock.message_types
  add column if not exists new_attributes text[] not null default '{}';

alter table if exists penstock.consumer_groups
  add column if not exists handled_types text[] not null default '{}',
  add column if not exists replayed_by text[],
  drop column if exists replaying_to;

alter table if exists penstock.group_types
  add column if not exists handled boolean not null default true;
alter table if exists penstock.group_types
  alter column handled drop default;

alter table if exists penstock.partitions
  drop constraint if exists partitions_group_pk_partition_key_key,
  add column if not exists replaying_to bigint not null default 0;

alter table if exists penstock.outbox
  alter column due drop not null,
  alter column due set default clock_timestamp(),
  reset (fillfactor),
  set (autovacuum_vacuum_scale_factor = 0.02);

do $$
begin
  if to_regclass('penstock.joins') is not null and to_regclass('penstock.join_steps') is null
      and not exists (
    select from pg_attribute
    where attrelid = to_regclass('penstock.joins') and attname = 'attached_steps'
  ) then
    alter table penstock.joins add column attached_steps integer not null default 0;
    update penstock.joins j set attached_steps = (
      select count(*) from penstock.join_members m where m.join_id = j.join_id);
    alter table penstock.joins drop constraint joins_check;
    alter table penstock.joins add constraint joins_check check (
      completed_steps + failed_steps <= attached_steps and attached_steps <= expected_steps);
  end if;
end
$$;

alter table if exists penstock.processors
  add column if not exists retired_at timestamptz;

-- functions that are gone, or have other arguments or another result
drop function if exists
  penstock.append_one(varchar, uuid, text, jsonb, jsonb, bigint, jsonb),
  penstock.check_guard(jsonb, bigint[], integer[]),
  penstock.check_staged(uuid[], bigint[]),
  penstock.claim_next(text, text[], text[], text, integer, interval),
  penstock.claim_outbox(text, integer, interval, timestamptz, uuid),
  penstock.condition_keys(jsonb),
  penstock.count_in_join(uuid, uuid[], text),
  penstock.lock_boundaries(bigint[], bigint[]),
  penstock.lock_boundaries(bigint[], bigint[], boolean, boolean),
  penstock.lock_for_append(varchar, text[], text[], jsonb, boolean),
  penstock.missed(varchar, bigint),
  penstock.nothing_to_claim(text, text[], text[]),
  penstock.removable(varchar, bigint, bigint, bigint),
  penstock.retain(varchar, bigint, timestamptz, bigint, boolean, bigint),
  penstock.retain(varchar, bigint, timestamptz, bigint, boolean, bigint, bigint),
  penstock.save_position(text, bigint, bigint),
  penstock.save_position(text, bigint, bigint, uuid),
  penstock.slowest_consumer(varchar),
  penstock.stored_positions(varchar),
  penstock.tell_partitions(integer, bigint[]);
