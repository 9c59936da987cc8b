-- Deliveries: what was staged is published once for each source and batch, whole or in slices.
--
-- While a transaction publishes, it holds the watermark back, and readers of the log wait. So a large
-- delivery is published in slices, a transaction each. The rows of the first attempt are then the delivery:
-- they are numbered in their order and moved to a logged table, each slice under a token of its own, before
-- the first slice is published; the delivery lists these tokens and how many of them are done. A retry may
-- have staged other rows, or the same in another order: it publishes the slices that are left, and its own
-- rows are dropped.

-- The rows of deliveries that are being published in slices. They survive a crash of the server. Queries of
-- `staged` find them, too, by their tokens.
create table if not exists penstock.staged_slices () inherits (penstock.staged);

create index if not exists staged_slices_token on penstock.staged_slices (token);

-- What was published last from each source. A versioned row, see 01_schema.sql.
create table if not exists penstock.deliveries (
  source text not null,                    -- a streaming query, or the name of a batch job's delivery
  version bigint not null default 0,
  batch bigint not null,                   -- the last one that was published
  published bigint not null,
  first_position bigint,
  last_position bigint,
  published_at timestamptz not null default now(),
  slices uuid[] not null default '{}',     -- the tokens of a delivery that is published in slices
  slice_counts bigint[] not null default '{}',
  slices_done bigint not null default 0,
  primary key (source, version)
);

-- Publish a delivery once: in this transaction, unless it has more than `slice_size` rows. Then it is split
-- into slices, and while rows are `remaining` the caller calls publish_slice(). Returns what was
-- published, now or by earlier calls for the same batch. Rows that expect a version of their stream
-- are never split: the version could change in between. With `own_ids`, ids are checked before the first
-- slice.
create or replace function penstock.publish_delivery(
  source text,
  batch bigint,
  tokens uuid[],
  counts bigint[],
  whole_categories boolean,
  slice_size bigint,
  own_ids boolean
)
returns table (
  published bigint, first_position bigint, last_position bigint, repeated boolean, remaining bigint)
language plpgsql
as $$
#variable_conflict use_column
declare
  old penstock.deliveries;
  new penstock.deliveries;
  staged record;
  result record;
begin
  if source is not null then
    loop
      old := penstock.locked_delivery(source);
      if old.slices_done < cardinality(old.slices) and (old.batch < batch or slice_size is null) then
        -- the remaining slices of an earlier batch, since its caller is gone
        perform penstock.publish_slice(source, whole_categories);
        continue;
      elsif old.batch >= batch then
        return query select old.published, old.first_position, old.last_position, true,
          penstock.remaining(old);
        return;
      end if;
      new.source := source;
      new.batch := batch;
      new.published := 0;
      new.slices := '{}';
      new.slice_counts := '{}';
      new.slices_done := 0;
      new.version := coalesce(old.version + 1, 0);
      exit when penstock.replace_delivery(old, new);
    end loop;

    select u.* into staged from penstock.staged_under(tokens, counts) u
    where slice_size is not null;
    if staged.total > slice_size and staged.versioned = 0 then
      if own_ids then
        perform penstock.refuse_staged_ids(tokens);
      end if;
      select s.* into result from penstock.slice_staged(tokens, staged.total, slice_size) s;
      update penstock.deliveries d
      set slices = result.slices, slice_counts = result.slice_counts
      where d.source = new.source and d.version = new.version;
      return query select 0::bigint, null::bigint, null::bigint, false, staged.total;
      return;
    end if;
  end if;

  select p.* into result from penstock.publish_staged(tokens, counts, null, whole_categories) p;
  update penstock.deliveries d
  set published = result.published, first_position = result.first_position,
    last_position = result.last_position
  where d.source = new.source and d.version = new.version;
  return query select result.published, result.first_position, result.last_position, false, 0::bigint;
end
$$;

-- Publish a delivery once, in this transaction.
create or replace function penstock.publish(
  source text,
  batch bigint,
  tokens uuid[],
  counts bigint[],
  whole_categories boolean default false
)
returns table (published bigint, first_position bigint, last_position bigint, repeated boolean)
language sql
as $$
  select p.published, p.first_position, p.last_position, p.repeated
  from penstock.publish_delivery(source, batch, tokens, counts, whole_categories, null, false) p
$$;

-- Publish the next slice of a delivery, if there is one. Returns what is published by now.
create or replace function penstock.publish_slice(
  source text,
  whole_categories boolean default false
)
returns table (published bigint, first_position bigint, last_position bigint, remaining bigint)
language plpgsql
as $$
#variable_conflict use_column
declare
  old constant penstock.deliveries := penstock.locked_delivery(source);
  new penstock.deliveries := old;
  slice constant bigint := old.slices_done + 1;
  result record;
begin
  if slice <= cardinality(old.slices) then
    select p.* into result from penstock.publish_staged(
      array[old.slices[slice]], array[old.slice_counts[slice]], null, whole_categories) p;
    perform penstock.unstage(array[old.slices[slice]]);
    new.slices_done := slice;
    new.published := old.published + result.published;
    new.first_position := coalesce(old.first_position, result.first_position);
    new.last_position := result.last_position;
    perform penstock.replace_delivery(old, new);
  end if;
  return query select new.published, new.first_position, new.last_position, penstock.remaining(new);
end
$$;

-- Split the rows staged under these tokens into slices, in the order in which they are published.
create or replace function penstock.slice_staged(
  tokens uuid[],
  total bigint,
  slice_size bigint,
  out slices uuid[],
  out slice_counts bigint[]
)
language plpgsql volatile
set work_mem = '128MB' set enable_sort = on set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_variable
begin
  select array_agg(gen_random_uuid()), array_agg(least(slice_size, total - first))
  into slices, slice_counts
  from generate_series(0, total - 1, slice_size) as s(first);

  insert into penstock.staged_slices
    (token, ordinal, id, stream_name, category, type, data, metadata)
  select slices[(n.number - 1) / slice_size + 1], n.number, n.id, n.stream_name, n.category, n.type,
    n.data, n.metadata
  from (
    select s.*, row_number() over (
      order by s.order_number, s.order_text, penstock.staged_order(tokens, s.token, s.ordinal)) as number
    from penstock.staged s
    where s.token = any (tokens)
  ) n;
  perform penstock.unstage(tokens);
end
$$;

-- How many rows of a delivery are not published yet.
create or replace function penstock.remaining(delivery penstock.deliveries)
returns bigint language sql immutable
as $$
  select coalesce(sum(c.count), 0)::bigint
  from unnest(delivery.slice_counts[delivery.slices_done + 1:]) as c(count)
$$;

-- The newest version of a source's row, locked; null if there is none.
create or replace function penstock.locked_delivery(source text)
returns penstock.deliveries language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
#variable_conflict use_column
declare
  latest penstock.deliveries;
begin
  loop
    select d.* into latest from penstock.deliveries d
    where d.source = locked_delivery.source
    order by d.source desc, d.version desc limit 1;
    exit when not found;
    select d.* into latest from penstock.deliveries d
    where d.source = latest.source and d.version = latest.version for update;
    exit when found;  -- else another transaction has replaced it
  end loop;
  return latest;
end
$$;

-- Replace the version that the caller has locked, or insert the first. False if another transaction did.
create or replace function penstock.replace_delivery(
  old penstock.deliveries, new penstock.deliveries)
returns boolean language plpgsql volatile
as $$
begin
  delete from penstock.deliveries d where d.source = old.source and d.version = old.version;
  insert into penstock.deliveries
    (source, version, batch, published, first_position, last_position, slices, slice_counts,
     slices_done)
  values (new.source, coalesce(old.version + 1, 0), new.batch, new.published, new.first_position,
    new.last_position, new.slices, new.slice_counts, new.slices_done)
  on conflict (source, version) do nothing;
  return found;
end
$$;
