-- Whether the text of a JSON value reads as a type of PostgreSQL's. Used where a reader wants null, or a
-- clear error, in place of a value of the wrong type.

do $$
begin
  if current_setting('server_version_num')::int >= 160000 then
    create or replace function penstock.reads_as(value text, type text)
    returns boolean language sql stable parallel safe
    as 'select pg_input_is_valid(value, type)';
  else
    create or replace function penstock.reads_as(value text, type text)
    returns boolean language plpgsql stable
    as $body$
    begin
      execute format('select %L::%s', value, type);
      return true;
    exception
      when data_exception then return false;
    end
    $body$;
  end if;
end
$$;
