-- Message DB's lock: the whole category, for one transaction. Our own writes take it in shared mode (see
-- penstock.lock_stream), so a caller of this function and our writers exclude each other.

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
