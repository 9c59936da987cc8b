-- Typed values for readers such as Spark: whether the text of a JSON value can be cast to a type, and the
-- types of Spark whose range is smaller than PostgreSQL's.

do $$
begin
  if to_regtype('penstock.tinyint') is null then
    create domain penstock.tinyint as smallint check (value between -128 and 127);
  end if;
  if to_regtype('penstock.day') is null then
    create domain penstock.day as date check (value between '0001-01-01' and '9999-12-31');
  end if;
  if to_regtype('penstock.instant') is null then
    create domain penstock.instant as timestamptz
      check (value >= '0001-01-01 00:00Z' and value < '10000-01-01 00:00Z');
  end if;
  if to_regtype('penstock.wall_time') is null then
    create domain penstock.wall_time as timestamp
      check (value >= '0001-01-01 00:00' and value < '10000-01-01 00:00');
  end if;
end
$$;

-- Whether a text is a date or a time as ISO 8601 writes it: '2026-01-02', '2026-01-02T03:04:05.678Z'.
-- PostgreSQL accepts more, and some of it depends on the time of the read ('today', 'now') or on settings of
-- the server (01/02/2026).
create or replace function penstock.is_iso_time(value text)
returns boolean language sql immutable parallel safe
as $$
  select value ~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}'
    '([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?'
    '(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$')
$$;

create or replace function penstock.refuse_time(value text)
returns text language plpgsql stable parallel safe
as $$
begin
  raise exception using errcode = 'invalid_datetime_format',
    message = format('%L is not a date or time in ISO 8601', value);
end
$$;

-- The same text, if it is a date or a time in ISO 8601.
create or replace function penstock.iso_time(value text)
returns text language sql stable parallel safe
as $$
  select case when value is null or penstock.is_iso_time(value) then value
    else penstock.refuse_time(value) end
$$;

-- Used where a reader asks for null, or a clear error, in place of a value of the wrong type.
do $$
begin
  if current_setting('server_version_num')::int >= 160000 then
    create or replace function penstock.reads_as_input(value text, type text)
    returns boolean language sql stable parallel safe
    as 'select pg_input_is_valid(value, type)';
  else
    create or replace function penstock.reads_as_input(value text, type text)
    returns boolean language plpgsql stable
    as $body$
    begin
      execute format('select %L::%s', value, type);
      return true;
    exception
      when data_exception or check_violation then return false;
    end
    $body$;
  end if;
end
$$;

create or replace function penstock.reads_as(value text, type text)
returns boolean language sql stable parallel safe
as $$
  select case
    when type = 'base64' then regexp_replace(value, '\s', '', 'g')
      ~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$'
    when type like 'numeric%' and value ~* 'nan' then false
    when type in ('penstock.day', 'penstock.instant', 'penstock.wall_time')
      and not penstock.is_iso_time(value) then false
    else penstock.reads_as_input(value, type)
  end
$$;
