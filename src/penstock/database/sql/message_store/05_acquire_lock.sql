-- Message DB's lock: the whole category, for one transaction. Our own writes share it (see
-- penstock.lock_stream), so whoever takes it here waits for them and keeps them waiting.

create or replace function message_store.acquire_lock(stream_name varchar)
returns bigint language plpgsql
as $$
declare
  category_key constant bigint :=
    message_store.hash_64(message_store.category(acquire_lock.stream_name));
begin
  perform pg_advisory_xact_lock(category_key);
  return category_key;
end
$$;
