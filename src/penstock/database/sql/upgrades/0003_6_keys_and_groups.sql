-- Joins of a grouping key, and groups, come in pages.

drop index if exists penstock.joins_grouping_key;
drop function if exists penstock.groups();
