-- The reports of Message DB: how many messages there are by stream, category and type, and what
-- share of the log that is. They count the whole log.

create or replace view message_store.stream_summary as
  select stream_name, count(*) as message_count,
    round(count(*) / sum(count(*)) over () * 100, 2) as percent
  from message_store.messages
  group by stream_name
  order by stream_name;

create or replace view message_store.type_summary as
  select type, count(*) as message_count,
    round(count(*) / sum(count(*)) over () * 100, 2) as percent
  from message_store.messages
  group by type
  order by type;

create or replace view message_store.stream_type_summary as
  select stream_name, type, count(*) as message_count,
    round(count(*) / sum(count(*)) over () * 100, 2) as percent
  from message_store.messages
  group by stream_name, type
  order by stream_name, type;

create or replace view message_store.type_stream_summary as
  select type, stream_name, message_count, percent
  from message_store.stream_type_summary
  order by type, stream_name;

create or replace view message_store.category_type_summary as
  select message_store.category(stream_name) as category, type, count(*) as message_count,
    round(count(*) / sum(count(*)) over () * 100, 2) as percent
  from message_store.messages
  group by category, type
  order by category, type;

create or replace view message_store.type_category_summary as
  select type, category, message_count, percent
  from message_store.category_type_summary
  order by type, category;
