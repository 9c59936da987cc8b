-- From version 1 to 2: functions whose arguments have changed. A guard's `seen` is a multirange.

drop function if exists penstock.append_one(varchar, uuid, text, jsonb, jsonb, bigint, jsonb);
drop function if exists penstock.append_one(
  varchar, uuid, text, jsonb, jsonb, bigint, text[], text[], text[], bigint, bigint[]);
drop function if exists penstock.as_guard(text, text[], text[], text[], bigint, bigint[]);
drop function if exists penstock.matching_positions(jsonb, bigint);
drop function if exists penstock.advanced_low(jsonb);
drop function if exists penstock.lock_for_append(varchar, text[], bigint[], bigint[], boolean);

-- Offsets and positions are replaced by a new version where they were updated.
alter table if exists penstock.sessions add column if not exists version bigint not null default 0;
alter table if exists penstock.sessions drop constraint if exists sessions_pkey;
alter table if exists penstock.sessions reset (fillfactor);
alter table if exists penstock.sessions
  add constraint sessions_pkey primary key (stream_name, consumer_id, version);
alter table if exists penstock.consumer_positions
  add column if not exists version bigint not null default 0;
alter table if exists penstock.consumer_positions drop constraint if exists consumer_positions_pkey;
drop index if exists penstock.consumer_positions_updated;
alter table if exists penstock.consumer_positions
  add constraint consumer_positions_pkey primary key (consumer_id, version);
