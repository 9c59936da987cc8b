-- Old messages can be archived.

-- functions with another argument
drop function if exists penstock.stage_errors(
  uuid, text, bigint[], text[], text, bigint, bigint, text[]);
drop function if exists penstock.seek_session(varchar, varchar, bigint, bigint, boolean);
drop function if exists penstock.get_category_messages(
  varchar, bigint, bigint, varchar, bigint, bigint, varchar, bigint);

-- messages of declared types are archived, too
alter table if exists penstock.message_types add column if not exists archive_filled_to bigint;
drop function if exists penstock.fill_attributes(text, bigint);
