-- What changes with every step or delivery is replaced by a new version where it was updated: the progress
-- of processors moves out of `processors` and `tailers`, which becomes a view; deliveries get a version.

do $$
begin
  if (select c.relkind from pg_class c where c.oid = to_regclass('penstock.tailers'))
      is distinct from 'r' then
    return;
  end if;
  create table penstock.processor_progress (
    pipeline text not null,
    processor text not null,
    version bigint not null default 0,
    tailers jsonb not null default '{}',
    cursor jsonb,
    steps bigint not null default 0,
    messages_in bigint not null default 0,
    messages_out bigint not null default 0,
    last_step_at timestamptz,
    last_step_seconds double precision,
    primary key (pipeline, processor, version)
  );
  insert into penstock.processor_progress
    (pipeline, processor, tailers, cursor, steps, messages_in, messages_out, last_step_at,
     last_step_seconds)
  select p.pipeline, p.processor,
    coalesce((
      select jsonb_object_agg(t.queue, t.position) from penstock.tailers t
      where t.pipeline = p.pipeline and t.processor = p.processor), '{}'),
    p.cursor, p.steps, p.messages_in, p.messages_out, p.last_step_at, p.last_step_seconds
  from penstock.processors p;
  alter table penstock.processors
    drop column cursor, drop column steps, drop column messages_in, drop column messages_out,
    drop column last_step_at, drop column last_step_seconds;
  drop view if exists penstock.tailers_at_work;
  drop table penstock.tailers;
end
$$;

alter table if exists penstock.deliveries add column if not exists version bigint not null default 0;
alter table if exists penstock.deliveries drop constraint if exists deliveries_pkey;
alter table if exists penstock.deliveries
  add constraint deliveries_pkey primary key (source, version);
