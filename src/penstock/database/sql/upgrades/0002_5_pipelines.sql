-- Pipelines: folders that a processor's steps write files to; errors are checked against the step.

alter table if exists penstock.processors
  add column if not exists folders text[] not null default '{}';

drop function if exists penstock.stage_errors(uuid, text, bigint[], text[]);
