-- The transactional outbox: messages that are handled later, at least once.
--
-- A message is ready, in progress, done or failed. A claim assigns it to an owner under a token, for the
-- length of a lease; acknowledging, abandoning and failing act only on messages that this token still
-- holds. A message whose lease has ended is made ready by the next claim that starts at the head of the
-- queue; until another claim takes it, its former token still holds it.
--
-- `last_token` and `last_outcome` are those of the last call that finished or abandoned a message. The same
-- call with the same token, repeated because its reply was lost, is recognised by them.
--
-- The promise: the cost of a claim does not grow with what was done before, even while a long
-- transaction elsewhere keeps vacuum from removing dead index entries, nor with messages that are not due
-- yet, nor with messages of topics that the caller does not handle. The ready messages are in an index
-- by topic and due time, and in one by due time alone. A claim continues from a cursor, where the claim
-- before it began. Without a cursor it starts at the head, where messages that were committed late may
-- be. All other changes are by primary key.
--
-- Times that an index is searched by are in variables: `clock_timestamp()` is volatile, and a volatile
-- function cannot be an index condition.

create table if not exists penstock.outbox (
  id uuid primary key,
  topic text not null check (topic <> ''),
  payload bytea not null,
  encoding text not null check (encoding in ('text', 'json', 'bytes')),
  state text not null default 'ready' check (state in ('ready', 'in_progress', 'done', 'failed')),
  due timestamptz default clock_timestamp(),  -- null: asleep, until it is woken
  correlation_id text,
  dedupe_key text,
  owner text,
  token uuid,
  lease_until timestamptz,
  attempts integer not null default 0,
  last_error text,
  last_token uuid,
  last_outcome text check (last_outcome in ('ready', 'done', 'failed')),
  created_at timestamptz not null default clock_timestamp(),
  finished_at timestamptz
) with (autovacuum_vacuum_scale_factor = 0.02);

-- no topic is empty: the condition keeps this index out of the plans of queries for one topic
create index if not exists outbox_ready_by_due on penstock.outbox (due, id)
  where state = 'ready' and topic <> '';
create index if not exists outbox_ready_by_topic on penstock.outbox (topic, due, id)
  where state = 'ready';
create index if not exists outbox_leases on penstock.outbox (lease_until)
  where state = 'in_progress';
create index if not exists outbox_done on penstock.outbox (finished_at) where state = 'done';
create index if not exists outbox_failed on penstock.outbox (topic, finished_at)
  where state = 'failed';
create unique index if not exists outbox_dedupe on penstock.outbox (topic, dedupe_key)
  where dedupe_key is not null;

-- A time within the range that clients can represent.
create or replace function penstock.readable_moment(moment timestamptz)
returns timestamptz language sql immutable parallel safe
as $$
  select case when moment is not null
    then greatest(least(moment, '9999-12-30 00:00:00+00'), '0001-01-02 00:00:00+00') end
$$;

-- Put messages into the outbox; with a join, as members of it. Returns their ids in order: that of the
-- existing message, where an id or a dedupe key exists already.
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

-- Make at most `most` messages ready whose lease has ended; null: all of them. They keep their due time,
-- so that they are the first in the queue, and their token, which holds them until another claim.
create or replace function penstock.reap_outbox(most integer default null)
returns bigint language plpgsql volatile
as $$
declare
  moment constant timestamptz := clock_timestamp();
  reaped bigint;
begin
  update penstock.outbox o
  set state = 'ready', lease_until = null
  where o.id = any (array(
    select e.id from penstock.outbox e
    where e.state = 'in_progress' and e.lease_until < moment
    order by e.lease_until limit most
    for update skip locked));
  get diagnostics reaped = row_count;
  return reaped;
end
$$;

-- Claim at most `most` due messages for an owner, oldest first: of these topics, or of every topic if
-- `topics` is null. From the cursor on or, without one, from the head, including ended leases.
create or replace function penstock.claim_outbox(
  owner text, topics text[], most integer, lease interval,
  cursor_due timestamptz default null, cursor_id uuid default null)
returns table (
  id uuid, topic text, payload bytea, encoding text, correlation_id text, due timestamptz,
  attempts integer, token uuid, created_at timestamptz
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  new_token constant uuid := gen_random_uuid();
  moment constant timestamptz := clock_timestamp();
  after_due constant timestamptz := coalesce(cursor_due, '-infinity');
  after_id constant uuid := coalesce(cursor_id, '00000000-0000-0000-0000-000000000000');
  chosen uuid[];
begin
  if cursor_due is null then
    perform penstock.reap_outbox(greatest(most, 100));
  end if;
  if topics is null then
    chosen := array(
      select o.id from penstock.outbox o
      where o.state = 'ready' and o.topic <> '' and (o.due, o.id) > (after_due, after_id)
        and o.due <= moment
      order by o.due, o.id limit most
      for update skip locked);
  else
    chosen := penstock.lock_ready(topics, most, after_due, after_id, moment);
  end if;
  if chosen = '{}' then
    return;
  end if;

  return query
    update penstock.outbox o
    set state = 'in_progress', owner = claim_outbox.owner, token = new_token,
      lease_until = clock_timestamp() + claim_outbox.lease,
      attempts = least(o.attempts, 2147483646) + 1
    where o.id = any (chosen)
    returning o.id, o.topic, o.payload, o.encoding, o.correlation_id,
      penstock.readable_moment(o.due), o.attempts, o.token, penstock.readable_moment(o.created_at);
end
$$;

-- Lock the first `most` ready messages of these topics after a cursor, that were due at `moment`. Messages
-- that are locked already are skipped, and the search continues after them.
create or replace function penstock.lock_ready(
  topics text[], most integer, after_due timestamptz, after_id uuid, moment timestamptz)
returns uuid[] language plpgsql volatile
as $$
declare
  ids uuid[];
  dues timestamptz[];
  locked uuid[] := '{}';
begin
  loop
    select array_agg(c.id), array_agg(c.due) into ids, dues
    from (
      -- the first of all topics together
      select o.id, o.due
      from (select distinct t.topic from unnest(topics) as t(topic)) t
      cross join lateral (
        -- the first of one topic
        select r.id, r.due from penstock.outbox r
        where r.state = 'ready' and r.topic = t.topic and (r.due, r.id) > (after_due, after_id)
          and r.due <= moment
        order by r.due, r.id limit most
      ) o
      order by o.due, o.id limit most
    ) c;
    locked := locked || array(  -- `|| ''` keeps the indexes of ready messages out of the plan
      select o.id from penstock.outbox o
      where o.id = any (ids) and o.state || '' = 'ready' and o.due <= moment
      order by o.due, o.id limit most - cardinality(locked)
      for update skip locked);
    if cardinality(locked) = most or ids[most] is null then
      return locked;
    end if;
    after_due := dues[most];
    after_id := ids[most];
  end loop;
end
$$;

-- Finish messages that this token holds, as 'done' or 'failed', and count them in their joins. Returns the
-- ids that it does not hold, which were not changed, except those that it finished before with this outcome.
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
      last_error = coalesce(finish_outbox.error, o.last_error), finished_at = clock_timestamp(),
      last_token = finish_outbox.token, last_outcome = finish_outbox.outcome
    where o.id = any (finish_outbox.ids) and o.state in ('in_progress', 'ready')
      and o.token = finish_outbox.token
    returning o.id
  )
  select coalesce(array_agg(c.id), '{}') into finished from changed c;

  perform penstock.count_in_joins(finished, finish_outbox.outcome);
  return penstock.not_settled(ids, finished, token, outcome);
end
$$;

-- Abandon messages: they can be claimed again after a delay or, if it is null, at their former due time.
-- Returns the ids that this token does not hold, except those that it abandoned before. With `counts`
-- false, the attempt does not count.
create or replace function penstock.abandon_outbox(
  ids uuid[], token uuid, delay interval, error text default null, counts boolean default true)
returns uuid[] language plpgsql volatile
as $$
#variable_conflict use_column
declare
  abandoned uuid[];
begin
  with changed as (
    update penstock.outbox o
    set state = 'ready', token = null, lease_until = null,
      due = coalesce(clock_timestamp() + delay, o.due),
      last_error = coalesce(abandon_outbox.error, o.last_error),
      attempts = o.attempts - (not counts)::int,
      last_token = abandon_outbox.token, last_outcome = 'ready'
    where o.id = any (abandon_outbox.ids) and o.state in ('in_progress', 'ready')
      and o.token = abandon_outbox.token
    returning o.id
  )
  select coalesce(array_agg(c.id), '{}') into abandoned from changed c;
  return penstock.not_settled(ids, abandoned, token, 'ready');
end
$$;

-- Those of `ids` that were not `settled` just now, nor by the same token with the same outcome before.
create or replace function penstock.not_settled(
  ids uuid[], settled uuid[], token uuid, outcome text)
returns uuid[] language plpgsql volatile
as $$
declare
  others constant uuid[] := array(select i from unnest(ids) i where i <> all (settled));
  before uuid[];
begin
  if others = '{}' then
    return others;
  end if;
  before := array(
    select o.id from penstock.outbox o
    where o.id = any (others) and o.last_token = not_settled.token
      and o.last_outcome = not_settled.outcome);
  return array(select i from unnest(others) i where i <> all (before));
end
$$;

-- Extend the lease of messages. Returns the ids that this token does not hold.
create or replace function penstock.extend_outbox(ids uuid[], token uuid, lease interval)
returns uuid[] language plpgsql volatile
as $$
#variable_conflict use_column
declare
  extended uuid[];
begin
  with changed as (
    update penstock.outbox o
    set state = 'in_progress', lease_until = clock_timestamp() + extend_outbox.lease
    where o.id = any (extend_outbox.ids) and o.state in ('in_progress', 'ready')
      and o.token = extend_outbox.token
    returning o.id
  )
  select coalesce(array_agg(c.id), '{}') into extended from changed c;
  return array(select i from unnest(extend_outbox.ids) i where i <> all (extended));
end
$$;

-- Try failed messages again: these, or all of a topic, or all.
create or replace function penstock.retry_outbox(ids uuid[] default null, topic text default null)
returns bigint language plpgsql volatile
as $$
#variable_conflict use_column
declare
  wanted uuid[] := ids;
  retried bigint;
begin
  if wanted is null and retry_outbox.topic is null then
    wanted := array(select o.id from penstock.outbox o where o.state = 'failed');
  elsif wanted is null then
    wanted := array(
      select o.id from penstock.outbox o
      where o.state = 'failed' and o.topic = retry_outbox.topic);
  end if;
  update penstock.outbox o
  set state = 'ready', due = clock_timestamp(), attempts = 0, finished_at = null
  where o.id = any (wanted) and o.state = 'failed'
    and o.topic = coalesce(retry_outbox.topic, o.topic);
  get diagnostics retried = row_count;
  return retried;
end
$$;

-- Remove at most `most` messages that were done before a moment and, if asked for, as many that failed
-- before it. Returns how many were removed.
create or replace function penstock.clean_outbox(
  before timestamptz, most integer default 10000, failed boolean default false)
returns bigint language plpgsql volatile
as $$
declare
  removed bigint;
  removed_failed bigint := 0;
begin
  delete from penstock.outbox o
  where o.id = any (array(
    select d.id from penstock.outbox d
    where d.state = 'done' and d.finished_at < before
    order by d.finished_at limit most
    for update skip locked));
  get diagnostics removed = row_count;
  if failed then
    delete from penstock.outbox o
    where o.id = any (array(
      select f.id from penstock.outbox f
      where f.state = 'failed' and f.finished_at < before
      limit most
      for update skip locked));
    get diagnostics removed_failed = row_count;
  end if;
  return removed + removed_failed;
end
$$;

-- The topics of ready messages, each with its first message, by a skip scan of the index.
create or replace function penstock.ready_topics()
returns table (topic text, id uuid, due timestamptz, last_error text)
language sql stable
as $$
  with recursive topics as (
    -- the first topic's first message, and then that of each topic after the one before
    (select o.topic, o.id, o.due, o.last_error from penstock.outbox o
     where o.state = 'ready' order by o.topic, o.due, o.id limit 1)
    union all
    select later.* from topics
    cross join lateral (
      select o.topic, o.id, o.due, o.last_error from penstock.outbox o
      where o.state = 'ready' and o.topic > topics.topic order by o.topic, o.due, o.id limit 1
    ) later
  )
  select t.topic, t.id, t.due, t.last_error from topics t
$$;

-- Report the topics that a dispatcher does not handle and whose first message has been due for longer than
-- `overdue`, in that message's last_error. Returns these topics, and since when they are due.
create or replace function penstock.report_unhandled(topics text[], owner text, overdue interval)
returns table (topic text, due timestamptz)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  unhandled record;
begin
  for unhandled in
    select t.topic, t.id, penstock.readable_moment(t.due) as due,
      format('no handler for topic %s in dispatcher %s', t.topic, report_unhandled.owner) as reason
    from penstock.ready_topics() t
    where t.topic <> all (report_unhandled.topics)
      and t.due < clock_timestamp() - report_unhandled.overdue
  loop
    update penstock.outbox o set last_error = unhandled.reason
    where o.id = (
      select l.id from penstock.outbox l
      where l.id = unhandled.id and l.state = 'ready'
      for update skip locked);
    topic := unhandled.topic;
    due := unhandled.due;
    return next;
  end loop;
end
$$;

-- The number of messages by topic and state; with the time since when the first ready message is due, if
-- one is, or when the first of the others was enqueued; and with the last error of the first ready message.
create or replace function penstock.outbox_summary()
returns table (
  topic text, state text, message_count bigint, oldest timestamptz, last_error text)
language sql stable
as $$
  select c.topic, c.state, c.message_count, penstock.readable_moment(c.oldest), r.last_error
  from (
    select o.topic, o.state, count(*) as message_count, min(case
      when o.state <> 'ready' then o.created_at
      when o.due <= clock_timestamp() then o.due end) as oldest
    from penstock.outbox o
    group by o.topic, o.state
  ) c
  left join penstock.ready_topics() r on r.topic = c.topic and c.state = 'ready'
  order by c.topic, c.state
$$;
