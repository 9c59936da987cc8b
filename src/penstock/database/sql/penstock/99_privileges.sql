-- Who may do what. The role message_store reads and appends, as in Message DB; penstock_reader is
-- for readers: a service or an analyst that must not be able to write.

do $$
begin
  if to_regrole('penstock_reader') is null then
    create role penstock_reader with nologin;
  end if;
exception
  -- another database of this server is being installed at this very moment
  when duplicate_object or unique_violation then null;
  when insufficient_privilege then
    raise notice 'role penstock_reader was not created: %', sqlerrm;
end
$$;

do $$
begin
  if to_regrole('message_store') is not null then
    grant usage on schema penstock to message_store;
    grant select on penstock.installations to message_store;
    grant execute on all functions in schema penstock to message_store;
  end if;
  if to_regrole('penstock_reader') is not null then
    grant usage on schema message_store, penstock to penstock_reader;
    grant select on message_store.messages to penstock_reader;
    grant select on penstock.installations to penstock_reader;
    grant execute on all functions in schema message_store, penstock to penstock_reader;
  end if;
end
$$;
