-- Privileges. The role message_store reads and appends, as in Message DB; penstock_reader is for services
-- and analysts that must not be able to write.

do $$
begin
  if to_regrole('penstock_reader') is null then
    create role penstock_reader with nologin;
  end if;
exception
  -- a concurrent installation in another database of this server created it
  when duplicate_object or unique_violation then null;
  when insufficient_privilege then
    raise notice 'role penstock_reader was not created: %', sqlerrm;
end
$$;

-- SECURITY DEFINER functions that write. (A trigger fires for any writer; EXECUTE is needed only to create a
-- trigger with the function.)
revoke execute on function
  penstock.remove_messages(
    varchar, bigint, bigint, timestamptz, varchar[], boolean, bigint, bigint),
  penstock.remove_consumer(varchar, varchar),
  penstock.move_to_archive(varchar, bigint[], text, text),
  penstock.declare_type(text, text[]), penstock.attach_attribute_triggers(),
  penstock.index_attributes(), penstock.forget_attributes(),
  penstock.renew_incarnation(), penstock.index_applied(), penstock.forget_applied(),
  penstock.place_applied(), penstock.forget_log()
from public;

do $$
begin
  if to_regrole('message_store') is not null then
    grant usage on schema penstock to message_store;
    grant select, insert, update, delete on all tables in schema penstock to message_store;
    revoke insert, update, delete
      on penstock.installations, penstock.retentions, penstock.identity, penstock.archive_segments,
        penstock.archive_catalog, penstock.archived_correlations
      from message_store;
    grant execute on all functions in schema penstock to message_store;
    revoke execute on function
      penstock.remove_messages(
        varchar, bigint, bigint, timestamptz, varchar[], boolean, bigint, bigint),
      penstock.remove_consumer(varchar, varchar),
      penstock.move_to_archive(varchar, bigint[], text, text),
      penstock.index_attributes(), penstock.forget_attributes(),
      penstock.renew_incarnation(), penstock.index_applied(), penstock.forget_applied(),
      penstock.place_applied(), penstock.forget_log()
    from message_store;
  end if;
  if to_regrole('penstock_reader') is not null then
    grant usage on schema message_store, penstock to penstock_reader;
    grant select on all tables in schema message_store to penstock_reader;
    grant select on all tables in schema penstock to penstock_reader;
    grant execute on all functions in schema message_store, penstock to penstock_reader;
    revoke execute on function
      penstock.remove_messages(
        varchar, bigint, bigint, timestamptz, varchar[], boolean, bigint, bigint),
      penstock.remove_consumer(varchar, varchar),
      penstock.move_to_archive(varchar, bigint[], text, text),
      penstock.declare_type(text, text[]), penstock.attach_attribute_triggers(),
      penstock.index_attributes(), penstock.forget_attributes(),
      penstock.renew_incarnation(), penstock.index_applied(), penstock.forget_applied(),
      penstock.place_applied(), penstock.forget_log()
    from penstock_reader;
  end if;
end
$$;

-- Functions of message_store call functions of penstock: a role with USAGE on the one needs the other.
do $$
declare
  granted record;
begin
  for granted in
    select distinct coalesce(quote_ident(r.rolname), 'public') as role
    from pg_namespace n
    cross join aclexplode(n.nspacl) a
    left join pg_roles r on r.oid = a.grantee
    where n.nspname = 'message_store' and a.privilege_type = 'USAGE'
  loop
    execute 'grant usage on schema penstock to ' || granted.role;
  end loop;
end
$$;
