-- The outbox and joins, from version 1 to version 2.

-- Claims name their topics and search by moments; a repeated call is recognised by its token.
drop function if exists penstock.claim_outbox(
  text, integer, interval, timestamptz, uuid, text[]);
drop function if exists penstock.claim_outbox(text, integer, interval, timestamptz, uuid);
drop function if exists penstock.reap_outbox();
drop function if exists penstock.outbox_summary();
drop index if exists penstock.outbox_finished;
drop index if exists penstock.outbox_ready;

do $$
begin
  if to_regclass('penstock.outbox') is not null then
    alter table penstock.outbox add column if not exists last_token uuid;
    alter table penstock.outbox add column if not exists last_outcome text
      check (last_outcome in ('ready', 'done', 'failed'));
  end if;
end
$$;

-- The steps of a join have a row of their own.
drop function if exists penstock.join_status(penstock.joins);
drop function if exists penstock.locked_join(uuid);
drop function if exists penstock.count_steps(uuid[], uuid[], text);

do $$
begin
  if exists (
    select from pg_attribute a
    where a.attrelid = to_regclass('penstock.joins') and a.attname = 'attached_steps'
      and not a.attisdropped
  ) then
    create table if not exists penstock.join_steps (
      join_id uuid not null references penstock.joins on delete cascade,
      version bigint not null default 0,
      attached_steps integer not null default 0,
      completed_steps integer not null default 0,
      failed_steps integer not null default 0,
      updated_at timestamptz not null default clock_timestamp(),
      primary key (join_id, version),
      check (completed_steps + failed_steps <= attached_steps)
    );
    insert into penstock.join_steps
      (join_id, attached_steps, completed_steps, failed_steps, updated_at)
    select j.join_id, j.attached_steps, j.completed_steps, j.failed_steps, j.updated_at
    from penstock.joins j
    where not exists (select from penstock.join_steps s where s.join_id = j.join_id);
    alter table penstock.joins
      drop column attached_steps, drop column completed_steps, drop column failed_steps;
  end if;
end
$$;
