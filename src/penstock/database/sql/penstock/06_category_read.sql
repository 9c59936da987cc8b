-- Reading many streams at once, complete up to the watermark.
--
-- The promise: messages come in the order of their global positions, and one that commits late is
-- never skipped. The watermark is taken in one statement and the rows are read in the next. Above READ
-- COMMITTED the rows would be read in a snapshot older than the watermark, so there the caller passes a
-- watermark that was taken before the transaction began.
--
-- Rows are compared as pairs (category, global_position), and ordered by both: only the index
-- messages_category has that order, so the planner cannot walk along the primary key to find the few
-- messages of a rare category. With `enable_sort = off` it cannot fetch all rows and sort them either,
-- as it would with old or missing statistics. So a read ends with its page.

create or replace function penstock.require_sql_condition()
returns void language plpgsql
as $$
begin
  if coalesce(current_setting('message_store.sql_condition', true), 'off') in ('off', '') then
    raise exception using
      message = 'Retrieval with SQL condition is not activated',
      detail = jsonb_build_object('code', 'PS008');
  end if;
end
$$;

-- Whether the stream is in that category or, for a name with a hyphen, begins with that prefix.
create or replace function penstock.belongs_to(stream_name varchar, category_or_prefix varchar)
returns boolean language sql immutable parallel safe
as $$
  select message_store.category(stream_name) = message_store.category(category_or_prefix)
    and (
      message_store.is_category(category_or_prefix)
      or stream_name = category_or_prefix
      or starts_with(stream_name, category_or_prefix || '-')
    )
$$;

-- Which correlation ids archived messages carry, by category: a digest of both.
create table if not exists penstock.archived_correlations (
  digest bigint primary key
);

create or replace function penstock.correlation_digest(category text, correlation_id text)
returns bigint language sql immutable parallel safe
as $$ select hashtextextended(length(category) || ':' || category || correlation_id, 0) $$;

-- Whether an archived message of that category carries this correlation id.
create or replace function penstock.correlates_with_archived(correlation_id text, category varchar)
returns boolean language sql stable
as $$
  select exists (
    select from penstock.archived_correlations a
    where a.digest = penstock.correlation_digest(category, correlation_id))
$$;

-- Whether the message correlates with that category: its `correlationStreamName` is in the category (as in
-- Message DB), or its `correlation_id` is that of a message of the category.
create or replace function penstock.correlates(metadata jsonb, correlation varchar)
returns boolean language sql stable
as $$
  select coalesce(
      penstock.belongs_to(metadata ->> 'correlationStreamName', correlation), false)
    or exists (
      select from message_store.messages m
      where m.metadata ? 'correlation_id'
        and m.metadata ->> 'correlation_id' = correlates.metadata ->> 'correlation_id'
        and message_store.category(m.stream_name) = message_store.category(correlation)
        and penstock.belongs_to(m.stream_name, correlation)
    )
    or penstock.correlates_with_archived(metadata ->> 'correlation_id', correlation)
$$;

create index if not exists messages_correlation on message_store.messages (
  (metadata ->> 'correlation_id'), message_store.category(stream_name)
)
where metadata ? 'correlation_id';

-- Whether Message DB assigns the stream to this member: by the hash of its id up to the first `+`.
create or replace function penstock.is_assigned(stream_name varchar, member bigint, size bigint)
returns boolean language sql immutable parallel safe
as $$
  select mod(
    @ message_store.hash_64(split_part(message_store.id(stream_name), '+', 1)::varchar), size
  ) = member
$$;

create or replace function penstock.check_group(member bigint, size bigint)
returns void language plpgsql immutable
as $$
declare
  problem constant text := case
    when (member is null) <> (size is null) then 'member and size must be specified'
    when size < 1 then 'size must not be less than 1'
    when member < 0 then 'member must not be less than 0'
    when member >= size then 'member must be less than the group size'
  end;
begin
  if problem is not null then
    raise exception using
      message = format('Consumer group %s (Consumer Group Member: %s, Consumer Group Size: %s)',
        problem, coalesce(member::text, '<NULL>'), coalesce(size::text, '<NULL>')),
      detail = jsonb_build_object('code', 'PS007');
  end if;
end
$$;

-- The watermark for a read in this transaction: the one passed in, that of the point at which a standby is read
-- (see 09_replicas.sql), or a fresh one. One that was passed in to a standby was taken before its point. A
-- reader that wants only what comes after a position passes that.
create or replace function penstock.readable_until(watermark bigint, after bigint default null)
returns bigint language plpgsql volatile
as $$
declare
  of_point constant text := current_setting('penstock.replica_watermark', true);
begin
  if of_point <> '' then
    return coalesce(watermark, of_point::bigint);
  elsif pg_is_in_recovery() then  -- also with a watermark from the primary, which may be ahead
    return penstock.refuse_standby();
  elsif watermark is not null then
    return watermark;
  elsif current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    return case when after is null then penstock.watermark() else penstock.watermark_after(after) end;
  else
    raise exception using
      errcode = 'PS003',
      message = format(
        'a %s transaction reads an old snapshot and needs a watermark taken before it began',
        current_setting('transaction_isolation')),
      hint = 'Call penstock.watermark() before BEGIN and pass it in.';
  end if;
end
$$;

-- With `archived`, the last row is a mark if the read meets the archive: see 23_archive.sql.
create or replace function penstock.get_category_messages(
  category varchar,
  "position" bigint default 1,
  batch_size bigint default 1000,
  correlation varchar default null,
  consumer_group_member bigint default null,
  consumer_group_size bigint default null,
  condition varchar default null,
  watermark bigint default null,
  archived boolean default false
)
returns setof message_store.message language plpgsql
set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
  first constant bigint := coalesce(position, 1);
  most constant bigint := nullif(coalesce(batch_size, 1000), -1);
  size smallint;  -- as in Message DB, which refuses a larger group
  until bigint;
begin
  if not message_store.is_category(category) then
    raise exception using
      message = format('Must be a category: %s', category),
      detail = jsonb_build_object('code', 'PS007', 'category', category);
  end if;
  perform penstock.check_group(consumer_group_member, consumer_group_size);
  if condition is not null then
    perform penstock.require_sql_condition();
  end if;
  if correlation is not null and not message_store.is_category(correlation) then
    -- only categories are known of the correlation ids of archived messages
    perform penstock.refuse_archived(message_store.category(correlation), 0, correlation);
  end if;
  size := consumer_group_size;

  until := coalesce(watermark, penstock.last_position());
  if first <= until then  -- else there is nothing new, and the announcements need not be read
    until := penstock.readable_until(watermark, greatest(first, 1) - 1);
  end if;

  if condition is not null then
    return query execute format(
      'select id::varchar, stream_name::varchar, type::varchar, position, global_position,
         data::varchar, metadata::varchar, time
       from message_store.messages
       where (%s) and (%s)
       order by %s
       limit $4',
      case category
        when '$all' then 'global_position >= $2 and global_position <= $3'
        else '(message_store.category(stream_name), global_position) >= ($1, $2) and
              (message_store.category(stream_name), global_position) <= ($1, $3)'
      end
      || case when correlation is not null then ' and penstock.correlates(metadata, $5)' else '' end
      || case when size is not null
           then ' and penstock.is_assigned(stream_name, $6, $7)' else '' end,
      condition,
      case category
        when '$all' then 'global_position'
        else 'message_store.category(stream_name), global_position'
      end)
    using category, first, until, most, correlation, consumer_group_member, size;

  elsif category = '$all' then
    return query
      select m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
        m.data::varchar, m.metadata::varchar, m.time
      from message_store.messages m
      where m.global_position >= first
        and m.global_position <= until
        and (correlation is null or penstock.correlates(m.metadata, correlation))
        and (size is null
          or penstock.is_assigned(m.stream_name, consumer_group_member, size))
      order by m.global_position
      limit most;

  else
    return query
      select m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
        m.data::varchar, m.metadata::varchar, m.time
      from message_store.messages m
      where (message_store.category(m.stream_name), m.global_position) >= (category, first)
        and (message_store.category(m.stream_name), m.global_position) <= (category, until)
        and (correlation is null or penstock.correlates(m.metadata, correlation))
        and (size is null
          or penstock.is_assigned(m.stream_name, consumer_group_member, size))
      order by message_store.category(m.stream_name), m.global_position
      limit most;
  end if;

  if archived then
    if exists (select from penstock.archive_segments s where s.highest_position >= first) then
      if condition is not null then
        perform penstock.refuse_archived(category, first, condition);
      end if;
      return query select * from penstock.archive_mark(category, first, until);
    end if;
  end if;
end
$$;

-- The position of the last message of a category (or of `$all`) at or below the watermark, archived or not; 0
-- if there is none.
create or replace function penstock.category_head(category varchar, watermark bigint default null)
returns bigint language plpgsql set enable_sort = off
as $$
#variable_conflict use_variable
declare
  until constant bigint := penstock.readable_until(watermark);
  head bigint;
  archived bigint;
begin
  if category = '$all' then
    head := (
      select m.global_position from message_store.messages m
      where m.global_position <= until
      order by m.global_position desc limit 1);
  else
    head := (
      select m.global_position from message_store.messages m
      where (message_store.category(m.stream_name), m.global_position) >= (category, 0)
        and (message_store.category(m.stream_name), m.global_position) <= (category, until)
      order by message_store.category(m.stream_name) desc, m.global_position desc limit 1);
  end if;
  archived := penstock.archived_to(category);  -- later: messages move from the table to the archive
  return coalesce(greatest(head, case when archived > until then until else archived end), 0);
end
$$;

-- Whether a stream holds the positions or the parked messages of consumers of `$all`. Those consumers read
-- it as a part of the log, and have nothing to handle in it.
create or replace function penstock.is_bookkeeping(stream_name varchar)
returns boolean language sql immutable parallel safe
as $$
  select message_store.category(is_bookkeeping.stream_name) in ('$all:position', '$all:parked')
$$;

-- The head of `$all` without those streams: otherwise a consumer that saves its position in a stream would
-- move the head by that, and would have to save again, endlessly.
create or replace function penstock.head_without_bookkeeping(watermark bigint default null)
returns bigint language plpgsql set enable_sort = off
as $$
#variable_conflict use_variable
declare
  until constant bigint := penstock.readable_until(watermark);
begin
  return coalesce((
    select m.global_position from message_store.messages m
    where m.global_position <= until and not penstock.is_bookkeeping(m.stream_name)
    order by m.global_position desc limit 1), 0);
end
$$;
