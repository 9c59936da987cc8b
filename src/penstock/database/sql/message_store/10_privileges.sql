-- The role that services use, with Message DB's privileges: read and append, never change.
--
-- Roles belong to the whole server, and creating one needs a privilege that a managed database may
-- not grant. Without it the installation continues, and only the owner can use the store.

do $$
begin
  if to_regrole('message_store') is null then
    create role message_store with login;
  end if;
exception
  -- a concurrent installation in another database of this server created it
  when duplicate_object or unique_violation then null;
  when insufficient_privilege then
    raise notice 'role message_store was not created: %', sqlerrm;
end
$$;

do $$
begin
  if to_regrole('message_store') is not null then
    grant usage on schema message_store to message_store;
    grant select, insert on message_store.messages to message_store;
    grant usage, select on sequence message_store.messages_global_position_seq to message_store;
    grant execute on all functions in schema message_store to message_store;
    grant select on
      message_store.category_type_summary, message_store.stream_summary,
      message_store.stream_type_summary, message_store.type_category_summary,
      message_store.type_stream_summary, message_store.type_summary
    to message_store;
  end if;
end
$$;
