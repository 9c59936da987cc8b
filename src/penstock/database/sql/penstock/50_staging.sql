-- Staging: bulk data is copied into a table first, and then published as messages in one transaction.
--
-- The promise: a delivery is published once and whole, or not at all, whatever was retried, duplicated or
-- killed meanwhile. How it is kept: each attempt to write generates a random token and stages its rows
-- under it; no other attempt touches them. To publish, the caller names exactly the tokens that count and
-- how many rows each has, in the transaction that also records the delivery. A concurrent publish of the
-- same delivery waits for that record and finds it. Rows of failed attempts stay until they are swept.
--
-- Staging is unlogged, so it costs little more than the network. A crash of the server empties it:
-- then the counts differ, nothing is published, and the caller stages again.
--
-- What would break it: deleting or publishing by anything but the token. Attempt numbers repeat, and an
-- attempt that was abandoned may still be writing.

create unlogged table if not exists penstock.staged (
  token uuid not null,
  ordinal bigint not null,                 -- the order in which rows were staged
  order_number bigint,                     -- the order that the writer asks for; before `ordinal`
  order_text text collate "C",
  id uuid not null,
  stream_name text,                        -- null: a stream of its own in this category
  category text not null,
  type text not null,
  data jsonb,
  metadata jsonb,
  expected_version bigint                  -- of the stream before the whole delivery
);

create index if not exists staged_token on penstock.staged (token);

create unlogged table if not exists penstock.stagings (
  token uuid primary key,
  staged_at timestamptz not null default now()
);

create index if not exists stagings_staged_at on penstock.stagings (staged_at);

-- A new id that sorts after those of earlier milliseconds, so that its index stays compact.
do $$
begin
  if current_setting('server_version_num')::int >= 180000 then
    create or replace function penstock.new_id() returns uuid language sql volatile parallel safe
      return uuidv7();
  else
    create or replace function penstock.new_id() returns uuid language sql volatile parallel safe
      as 'select encode(set_byte(
            overlay(uuid_send(gen_random_uuid()) placing
              substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
              from 1 for 6),
            6, 112 + (random() * 15)::int), ''hex'')::uuid';
  end if;
end
$$;

alter table penstock.staged alter column id set default penstock.new_id();

-- Publish the rows staged under these tokens as messages, all or none, in the order that their writer
-- asks for, in this transaction. `stamp` is added to the metadata of each.
create or replace function penstock.publish_staged(
  tokens uuid[],
  counts bigint[],
  stamp jsonb default null,
  whole_categories boolean default false   -- on a genuine Message DB, whose readers need it
)
returns table (published bigint, first_position bigint, last_position bigint)
language plpgsql
set work_mem = '128MB' set enable_sort = on set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  staged record;
  ordered boolean;  -- if false, the planner drops the sort keys that are null for all rows
begin
  perform penstock.refuse_old_snapshot();
  select u.* into staged from penstock.staged_under(tokens, counts) u;
  ordered := staged.ordered;
  if staged.total = 0 then
    published := 0;
    return next;
    return;
  end if;

  if whole_categories or staged.named >= 400 then
    perform penstock.lock_categories(staged.categories);
  else
    perform penstock.lock_streams(staged.categories, array(
      select distinct s.stream_name from penstock.staged s
      where s.token = any (tokens) and s.stream_name is not null));
  end if;
  if staged.versioned > 0 then
    perform penstock.check_staged_versions(tokens);
  end if;

  begin
    if staged.named = 0 then
      return query
        with new as (
          insert into message_store.messages (id, stream_name, position, type, data, metadata)
          select s.id, s.category || '-' || s.id, 0, s.type, s.data,
            case when stamp is null then s.metadata else coalesce(s.metadata, '{}') || stamp end
          from penstock.staged s
          where s.token = any (tokens)
          order by case when ordered then s.order_number end, case when ordered then s.order_text end,
            penstock.staged_order(tokens, s.token, s.ordinal)
          returning global_position
        )
        select count(*), min(n.global_position), max(n.global_position) from new n;
    else
      return query
        with streams as materialized (
          -- each stream that is written to, the first row for it, and its version; rows are numbered
          -- by the former, since numbers sort faster than names, and are often in order already
          select s.stream_name, s.first, v.version
          from (
            select s.stream_name, min(penstock.staged_order(tokens, s.token, s.ordinal)) as first
            from penstock.staged s
            where s.token = any (tokens) and s.stream_name is not null
            group by s.stream_name
          ) s
          cross join lateral (
            select coalesce(max(m.position), -1) as version from (
              select m.position from message_store.messages m
              where m.stream_name = s.stream_name order by m.position desc limit 1) m
          ) v
        ), new as (
          insert into message_store.messages (id, stream_name, position, type, data, metadata)
          select s.id, coalesce(s.stream_name, s.category || '-' || s.id),
            coalesce(v.version + row_number() over (
              partition by v.first
              order by case when ordered then s.order_number end,
                case when ordered then s.order_text end,
                penstock.staged_order(tokens, s.token, s.ordinal)), 0),
            s.type, s.data,
            case when stamp is null then s.metadata else coalesce(s.metadata, '{}') || stamp end
          from (select s.* from penstock.staged s where s.token = any (tokens)) s
          -- full, although every stream has a row: that is always a hash join. With statistics from
          -- before the rows were staged, a left join may be a nested loop
          full join streams v on v.stream_name = s.stream_name
          order by case when ordered then s.order_number end, case when ordered then s.order_text end,
            penstock.staged_order(tokens, s.token, s.ordinal)
          returning global_position
        )
        select count(*), min(n.global_position), max(n.global_position) from new n;
    end if;
  exception
    when unique_violation then
      perform penstock.refuse_staged_ids(tokens);
      raise;
  end;
end
$$;

-- What is staged under these tokens, in one pass; refused if the counts differ.
create or replace function penstock.staged_under(
  tokens uuid[],
  counts bigint[],
  out total bigint,
  out named bigint,                        -- rows that have a stream's name
  out versioned bigint,                    -- rows that expect a version of it
  out ordered boolean,                     -- whether some have a key to sort by
  out categories varchar[]
)
language plpgsql volatile
as $$
declare
  wrong jsonb;
begin
  with parts as materialized (
    select s.token, coalesce(message_store.category(s.stream_name), s.category) as category,
      count(*) as count, count(s.stream_name) as named, count(s.expected_version) as versioned,
      count(s.order_number) + count(s.order_text) as ordered
    from penstock.staged s where s.token = any (tokens)
    group by 1, 2
  ), found as (
    select t.token, t.count as expected, coalesce(sum(p.count), 0) as found
    from unnest(tokens, counts) as t(token, count)
    left join parts p on p.token = t.token
    group by t.token, t.count
  )
  select coalesce(sum(p.count), 0), coalesce(sum(p.named), 0), coalesce(sum(p.versioned), 0),
    coalesce(sum(p.ordered), 0) > 0, array_agg(distinct p.category),
    (select to_jsonb(f) from found f where f.found <> f.expected limit 1)
  into total, named, versioned, ordered, categories, wrong
  from parts p;
  if wrong is not null then
    raise exception using errcode = 'PS070',
      message = format('expected %s rows staged under token %s, found %s',
        wrong ->> 'expected', wrong ->> 'token', wrong ->> 'found'),
      detail = wrong,
      hint = 'The server has crashed since, which empties the staging tables: write again.';
  end if;
end
$$;

-- Refuse the delivery if a stream does not have the version that a row expects.
create or replace function penstock.check_staged_versions(tokens uuid[])
returns void language plpgsql volatile
as $$
declare
  wrong record;
begin
  select e.*, coalesce(message_store.stream_version(e.stream_name::varchar), -1) as actual
  into wrong
  from (
    select s.stream_name, min(s.expected_version) as expected, max(s.expected_version) as other
    from penstock.staged s
    where s.token = any (tokens) and s.expected_version is not null
    group by s.stream_name
  ) e
  where e.expected <> e.other
    or e.expected <> coalesce(message_store.stream_version(e.stream_name::varchar), -1)
  order by e.stream_name
  limit 1;
  if found then
    raise exception using errcode = 'PS001',
      message = format('Wrong expected version: %s (Stream: %s, Stream Version: %s)',
        case wrong.actual when wrong.expected then wrong.other else wrong.expected end,
        wrong.stream_name, wrong.actual),
      detail = jsonb_build_object('stream_name', wrong.stream_name, 'actual', wrong.actual,
        'expected', case wrong.actual when wrong.expected then wrong.other else wrong.expected end);
  end if;
end
$$;

-- Refuse the delivery if it has an id twice, or one that is in the log already.
create or replace function penstock.refuse_staged_ids(tokens uuid[])
returns void language plpgsql volatile
as $$
declare
  taken record;
begin
  select x.id, x.stream_name, x.what into taken
  from (
    select s.id, m.stream_name, 'exists already' as what
    from penstock.staged s join message_store.messages m on m.id = s.id
    where s.token = any (tokens)
    union all
    select s.id, min(s.stream_name), 'occurs twice in this write'
    from penstock.staged s where s.token = any (tokens)
    group by s.id having count(*) > 1
  ) x
  limit 1;
  if found then
    raise exception using errcode = 'PS002',
      message = format('message %s %s, in stream %s', taken.id, taken.what, taken.stream_name),
      detail = jsonb_build_object('id', taken.id, 'stream_name', taken.stream_name);
  end if;
end
$$;

-- A number that orders rows by their token and, within a token, by `ordinal`.
create or replace function penstock.staged_order(tokens uuid[], token uuid, ordinal bigint)
returns bigint language sql immutable parallel safe
as $$ select (array_position(tokens, token)::bigint << 44) + ordinal $$;

-- Delete the rows staged under these tokens: they are published, or abandoned.
create or replace function penstock.unstage(tokens uuid[])
returns void language sql volatile
as $$
  delete from penstock.staged s where s.token = any (tokens);
  delete from penstock.stagings s where s.token = any (tokens);
$$;

-- Delete staged rows that were not published for so long. Returns of how many attempts.
create or replace function penstock.sweep_staging(older_than interval default '1 day')
returns bigint language plpgsql volatile
as $$
declare
  leftover constant uuid[] := array(
    select s.token from penstock.stagings s where s.staged_at < now() - older_than
    order by s.staged_at limit 100);
begin
  perform penstock.unstage(leftover);
  return cardinality(leftover);
end
$$;
