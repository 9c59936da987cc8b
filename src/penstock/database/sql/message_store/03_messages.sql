-- The log: one table, whose columns, defaults and index names are Message DB's.

do $$
begin
  if to_regtype('message_store.message') is null then
    create type message_store.message as (
      id varchar,
      stream_name varchar,
      type varchar,
      position bigint,
      global_position bigint,
      data varchar,
      metadata varchar,
      time timestamp
    );
  end if;
end
$$;

create table if not exists message_store.messages (
  global_position bigserial not null primary key,
  position bigint not null,
  time timestamp without time zone default (now() at time zone 'utc') not null,
  stream_name text not null,
  type text not null,
  data jsonb,
  metadata jsonb,
  id uuid not null default gen_random_uuid()
);

create unique index if not exists messages_id on message_store.messages (id);

create unique index if not exists messages_stream on message_store.messages (stream_name, position);

create index if not exists messages_category on message_store.messages (
  message_store.category(stream_name),
  global_position,
  message_store.category(metadata ->> 'correlationStreamName')
);
