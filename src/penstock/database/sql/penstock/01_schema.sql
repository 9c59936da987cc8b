-- The schema for everything that Message DB does not have, and the record of installations.
--
-- Versioned rows. Where a row changes with every call (an offset, a position, the state of a partition, the
-- progress of a processor), it is not updated. An UPDATE leaves the old row behind until vacuum removes it,
-- which an open snapshot prevents, and a look-up by the key would visit all of those dead rows. So the primary
-- key ends in `version`, and a change deletes the newest version and inserts the next (in `join_steps`, it
-- updates the version itself, which does the same). A look-up reads the index backwards (`order by ... version
-- desc limit 1`): it finds the newest version first, and costs the same however often the row has changed.
-- Such a table has two functions:
--
--   latest_*   returns the newest version; with `locked` it is also locked until the transaction ends
--   replace_*  puts a new version in the place of one that the caller has locked. Where the row may not
--              exist yet, it returns false if another transaction inserted it first
--
-- They are written out for each table: one function for all would need dynamic SQL, which is planned anew
-- in each call.

create schema if not exists penstock;

create table if not exists penstock.installations (
  id bigint generated always as identity primary key,
  version integer not null,                -- the schema version, see penstock/database/edition.py
  oldest_client integer not null,          -- the lowest version of a client that still works
  digest text not null,                    -- of the SQL files in sql/message_store and sql/penstock
  edition text not null check (edition in ('penstock', 'message-db')),
  installed_at timestamptz not null default now(),
  installed_by text not null default current_user,
  upgrades text[] not null default '{}',   -- the files of sql/upgrades that are done
  parts jsonb not null default '{}'        -- what was installed, with a digest of each function and trigger
);
