-- The schema for all that Message DB does not have, and the record of what was installed when.

create schema if not exists penstock;

create table if not exists penstock.installations (
  id bigint generated always as identity primary key,
  version integer not null,                -- rises with each change of the SQL that clients can see
  oldest_client integer not null,          -- the lowest version of a client that still works
  digest text not null,                    -- of the SQL files in sql/message_store and sql/penstock
  edition text not null check (edition in ('penstock', 'message-db')),
  installed_at timestamptz not null default now(),
  installed_by text not null default current_user,
  upgrades text[] not null default '{}',   -- the files of sql/upgrades that need not run here again
  parts jsonb not null default '{}'        -- a digest of each function and trigger, as it was installed
);
