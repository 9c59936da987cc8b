-- The outbox: work to be done later, surely, and at least once.
--
-- A message is ready, in progress, done or failed. Claiming gives it to an owner under a token, for the
-- length of a lease; acknowledging, abandoning and failing act only on messages that this token still
-- holds. A lease that has ended is as good as ready: any claim picks the message up.
--
-- The promise: the cost of a claim does not grow with what was done before, even while a long
-- transaction elsewhere keeps vacuum from removing dead index entries. The ready messages stand in an
-- index by due time; a claimer remembers how far along it is (`floor`) and goes on from there. Now and
-- then it takes a whole look: from the start, where late commits may stand, and at ended leases. All
-- other changes are by primary key.

create table if not exists penstock.outbox (
  id uuid primary key,
  topic text not null check (topic <> ''),
  payload bytea not null,
  encoding text not null check (encoding in ('text', 'json', 'bytes')),
  state text not null default 'ready' check (state in ('ready', 'in_progress', 'done', 'failed')),
  due timestamptz default clock_timestamp(),  -- null: asleep, until somebody wakes it
  correlation_id text,
  dedupe_key text,
  owner text,
  token uuid,
  lease_until timestamptz,
  attempts integer not null default 0,
  last_error text,
  created_at timestamptz not null default clock_timestamp(),
  finished_at timestamptz
) with (autovacuum_vacuum_scale_factor = 0.02);

create index if not exists outbox_ready on penstock.outbox (due, id) where state = 'ready';
create index if not exists outbox_leases on penstock.outbox (lease_until)
  where state = 'in_progress';
create index if not exists outbox_finished on penstock.outbox (finished_at)
  where state in ('done', 'failed');
create index if not exists outbox_failed on penstock.outbox (topic, finished_at)
  where state = 'failed';
create unique index if not exists outbox_dedupe on penstock.outbox (topic, dedupe_key)
  where dedupe_key is not null;

-- A moment as clients can hold it, whoever wrote it and however far off it is.
create or replace function penstock.readable_moment(moment timestamptz)
returns timestamptz language sql immutable parallel safe
as $$
  select case when moment is not null
    then greatest(least(moment, '9999-12-30 00:00:00+00'), '0001-01-02 00:00:00+00') end
$$;

-- Put messages into the outbox; with a join, as members of it. Returns their ids in order: that of the
-- message there already, where an id or a dedupe key is known.
create or replace function penstock.enqueue(
  ids uuid[], topics text[], payloads bytea[], encodings text[], due timestamptz[],
  correlation_ids text[], dedupe_keys text[], joins uuid[] default '{}')
returns uuid[] language plpgsql
as $$
#variable_conflict use_column
declare
  added uuid[];
  placed uuid[];
begin
  with inserted as (
    insert into penstock.outbox
      (id, topic, payload, encoding, due, correlation_id, dedupe_key)
    select m.id, m.topic, m.payload, m.encoding, coalesce(m.due, clock_timestamp()),
      m.correlation_id, m.dedupe_key
    from unnest(enqueue.ids, enqueue.topics, enqueue.payloads, enqueue.encodings, enqueue.due,
        enqueue.correlation_ids, enqueue.dedupe_keys)
      with ordinality
      as m(id, topic, payload, encoding, due, correlation_id, dedupe_key, ordinality)
    order by m.ordinality
    on conflict do nothing
    returning id
  )
  select array_agg(i.id) into added from inserted i;
  if enqueue.joins = '{}' and cardinality(added) = cardinality(enqueue.ids) then
    return enqueue.ids;
  end if;

  placed := array(
    select coalesce(known.id, m.id)
    from unnest(enqueue.ids, enqueue.topics, enqueue.dedupe_keys)
      with ordinality as m(id, topic, dedupe_key, ordinality)
    left join penstock.outbox known
      on known.topic = m.topic and known.dedupe_key = m.dedupe_key
    order by m.ordinality);

  perform penstock.attach_to_joins(enqueue.joins, placed, added);
  return placed;
end
$$;

-- Give at most `most` due messages to an owner: from the floor on, or, without one, by a whole look.
-- Topics that it has no handler for are passed over.
create or replace function penstock.claim_outbox(
  owner text, most integer, lease interval,
  floor_due timestamptz default null, floor_id uuid default null, passed_over text[] default '{}')
returns table (
  id uuid, topic text, payload bytea, encoding text, correlation_id text, due timestamptz,
  attempts integer, token uuid, created_at timestamptz
)
language plpgsql volatile set enable_sort = off
as $$
#variable_conflict use_column
declare
  new_token constant uuid := gen_random_uuid();
  chosen uuid[] := '{}';
begin
  if floor_due is null then
    chosen := array(
      select o.id from penstock.outbox o
      where o.state = 'in_progress' and o.lease_until < clock_timestamp()
        and o.topic <> all (passed_over)
      order by o.lease_until limit most
      for update skip locked);
  end if;
  if cardinality(chosen) < most then
    chosen := chosen || array(
      select o.id from penstock.outbox o
      where o.state = 'ready' and o.due <= clock_timestamp()
        and (floor_due is null or (o.due, o.id) >= (floor_due, floor_id))
        and o.topic <> all (passed_over)
      order by o.due, o.id limit most - cardinality(chosen)
      for update skip locked);
  end if;
  if chosen = '{}' then
    return;
  end if;

  return query
    update penstock.outbox o
    set state = 'in_progress', owner = claim_outbox.owner, token = new_token,
      lease_until = clock_timestamp() + claim_outbox.lease, attempts = o.attempts + 1
    where o.id = any (chosen)
    returning o.id, o.topic, o.payload, o.encoding, o.correlation_id,
      penstock.readable_moment(o.due), o.attempts, o.token, o.created_at;
end
$$;

-- Finish messages that this token holds, for good or bad, and count them in their joins. Returns the
-- ids that it does not hold any more, which were not changed.
create or replace function penstock.finish_outbox(
  ids uuid[], token uuid, outcome text, error text default null)
returns uuid[] language plpgsql volatile
as $$
#variable_conflict use_column
declare
  finished uuid[];
begin
  with changed as (
    update penstock.outbox o
    set state = finish_outbox.outcome, token = null, lease_until = null,
      last_error = coalesce(finish_outbox.error, o.last_error), finished_at = clock_timestamp()
    where o.id = any (finish_outbox.ids) and o.state = 'in_progress'
      and o.token = finish_outbox.token
    returning o.id
  )
  select coalesce(array_agg(c.id), '{}') into finished from changed c;

  perform penstock.count_in_joins(finished, finish_outbox.outcome);
  return array(select i from unnest(finish_outbox.ids) i where i <> all (finished));
end
$$;

-- Give messages back, to be claimed again after a delay. Returns the ids that this token does not hold.
-- A message that only waits (`counts` false) has not used up an attempt.
create or replace function penstock.abandon_outbox(
  ids uuid[], token uuid, delay interval, error text default null, counts boolean default true)
returns uuid[] language plpgsql volatile
as $$
#variable_conflict use_column
declare
  given_back uuid[];
begin
  with changed as (
    update penstock.outbox o
    set state = 'ready', token = null, lease_until = null, due = clock_timestamp() + delay,
      last_error = coalesce(abandon_outbox.error, o.last_error),
      attempts = o.attempts - (not counts)::int
    where o.id = any (abandon_outbox.ids) and o.state = 'in_progress'
      and o.token = abandon_outbox.token
    returning o.id
  )
  select coalesce(array_agg(c.id), '{}') into given_back from changed c;
  return array(select i from unnest(abandon_outbox.ids) i where i <> all (given_back));
end
$$;

-- Hold messages for another lease. Returns the ids that this token does not hold.
create or replace function penstock.extend_outbox(ids uuid[], token uuid, lease interval)
returns uuid[] language plpgsql volatile
as $$
#variable_conflict use_column
declare
  extended uuid[];
begin
  with changed as (
    update penstock.outbox o set lease_until = clock_timestamp() + extend_outbox.lease
    where o.id = any (extend_outbox.ids) and o.state = 'in_progress'
      and o.token = extend_outbox.token
    returning o.id
  )
  select coalesce(array_agg(c.id), '{}') into extended from changed c;
  return array(select i from unnest(extend_outbox.ids) i where i <> all (extended));
end
$$;

-- Make messages ready whose lease has ended. Claims do that by themselves; this is for those who ask.
create or replace function penstock.reap_outbox()
returns bigint language plpgsql volatile
as $$
declare
  reaped bigint;
begin
  update penstock.outbox o
  set state = 'ready', token = null, lease_until = null, due = clock_timestamp()
  where o.id in (
    select e.id from penstock.outbox e
    where e.state = 'in_progress' and e.lease_until < clock_timestamp()
    for update skip locked);
  get diagnostics reaped = row_count;
  return reaped;
end
$$;

-- Try failed messages again: these, or all of a topic, or all.
create or replace function penstock.retry_outbox(ids uuid[] default null, topic text default null)
returns bigint language plpgsql volatile
as $$
#variable_conflict use_column
declare
  retried bigint;
begin
  update penstock.outbox o
  set state = 'ready', due = clock_timestamp(), attempts = 0, finished_at = null
  where o.state = 'failed'
    and (retry_outbox.ids is null or o.id = any (retry_outbox.ids))
    and (retry_outbox.topic is null or o.topic = retry_outbox.topic);
  get diagnostics retried = row_count;
  return retried;
end
$$;

-- Remove at most `most` messages that were done, or failed, before a moment.
create or replace function penstock.clean_outbox(
  before timestamptz, most integer default 10000, failed boolean default false)
returns bigint language plpgsql volatile
as $$
declare
  removed bigint;
begin
  delete from penstock.outbox o
  where o.id in (
    select d.id from penstock.outbox d
    where d.state in ('done', 'failed') and d.finished_at < before and (d.state = 'done' or failed)
    order by d.finished_at limit most
    for update skip locked);
  get diagnostics removed = row_count;
  return removed;
end
$$;

-- How the outbox stands, by topic and state: with the moment since when the first ready message is due,
-- if one is, and when the first of the others was enqueued.
create or replace function penstock.outbox_summary()
returns table (topic text, state text, message_count bigint, oldest timestamptz)
language sql stable
as $$
  select o.topic, o.state, count(*), penstock.readable_moment(min(case
    when o.state <> 'ready' then o.created_at
    when o.due <= clock_timestamp() then o.due end))
  from penstock.outbox o
  group by o.topic, o.state
  order by o.topic, o.state
$$;
