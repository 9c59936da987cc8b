-- Pipelines: the progress of each processor, and the commit of a step.
--
-- The promise: the outputs of a step and its input positions become visible together, once. How it is kept:
-- a step begins with a Snapshot in the processor's backing stream {pipeline}:try-{processor}, which states
-- what it reads; its hash identifies the delivery. commit_step publishes only if that Snapshot is still the
-- last record there (so no attempt of it was committed and no other step began) and every tailer is still
-- where the Snapshot begins; and in the same transaction it writes the Attempt and moves the tailers. Two
-- runs of one step wait for the lock of the processor's row: the second finds the Attempt and raises.
--
-- So a run that was killed anywhere has committed its step or nothing of it. The next run reads the last
-- record: a Snapshot is run again as it is, an Attempt is done.

create table if not exists penstock.processors (
  pipeline text not null,
  processor text not null,
  kind text not null,                      -- source, stream, sink, projection, table or archive
  generation integer not null default 0,   -- rises when it starts from scratch
  start_positions jsonb not null default '{}',  -- queue: where this generation begins to read it
  rebuilding boolean not null default false,
  tables text[] not null default '{}',     -- that its steps upsert into; emptied when it starts from scratch
  folders text[] not null default '{}',    -- that its steps write files to; likewise
  error text,                              -- that stopped it; null while it runs
  error_at timestamptz,
  retired_at timestamptz,                  -- removed for good: retention does not wait for it
  primary key (pipeline, processor)
);

-- What changes with every step of a processor. A versioned row, see 01_schema.sql. It is replaced under the
-- lock of the row in `processors`.
create table if not exists penstock.processor_progress (
  pipeline text not null,
  processor text not null,
  version bigint not null default 0,
  tailers jsonb not null default '{}',     -- queue: all at or below this position has been processed
  cursor jsonb,                            -- of a source: as its last step returned it
  steps bigint not null default 0,
  messages_in bigint not null default 0,
  messages_out bigint not null default 0,
  last_step_at timestamptz,
  last_step_seconds double precision,
  primary key (pipeline, processor, version)
);

-- The newest version of a processor's progress: one row, once the processor was opened.
create or replace function penstock.latest_processor_progress(pipeline text, processor text)
returns setof penstock.processor_progress language sql stable rows 1
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  select p.* from penstock.processor_progress p
  where p.pipeline = latest_processor_progress.pipeline and p.processor = latest_processor_progress.processor
  order by p.pipeline desc, p.processor desc, p.version desc limit 1
$$;

-- Replace a processor's progress.
create or replace function penstock.replace_processor_progress(
  old penstock.processor_progress, new penstock.processor_progress)
returns void language plpgsql volatile
as $$
begin
  delete from penstock.processor_progress p
  where p.pipeline = old.pipeline and p.processor = old.processor and p.version = old.version;
  new.version := old.version + 1;
  insert into penstock.processor_progress
    (pipeline, processor, version, tailers, cursor, steps, messages_in, messages_out, last_step_at,
     last_step_seconds)
  values (new.pipeline, new.processor, new.version, new.tailers, new.cursor, new.steps,
    new.messages_in, new.messages_out, new.last_step_at, new.last_step_seconds);
end
$$;

-- How far each processor has read each of its queues.
create or replace view penstock.tailers as
  select p.pipeline, p.processor, t.key as queue, t.value::bigint as position, s.last_step_at, p.error
  from penstock.processors p
  cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s
  cross join lateral jsonb_each_text(s.tailers) t;

-- The tailers of processors that are not retired.
create or replace view penstock.active_tailers as
  select t.* from penstock.tailers t
  where not exists (
    select from penstock.processors p
    where p.pipeline = t.pipeline and p.processor = t.processor and p.retired_at is not null);

create or replace function penstock.backing_stream(pipeline text, processor text)
returns varchar language sql immutable parallel safe
as $$ select (pipeline || ':try-' || processor)::varchar $$;

-- Create the row of a processor if there is none, and return its state, its tailers and the last two records
-- of its backing stream, newest first.
create or replace function penstock.open_processor(pipeline text, processor text, kind text)
returns table (generation integer, start_positions jsonb, cursor jsonb, rebuilding boolean,
  tailers jsonb, records jsonb)
language plpgsql
as $$
#variable_conflict use_column
begin
  if not exists (  -- a run calls this many times a second: mostly there is nothing to write
    select from penstock.processors p
    where p.pipeline = open_processor.pipeline and p.processor = open_processor.processor
      and p.kind = open_processor.kind and p.error is null and p.retired_at is null
  ) then
    insert into penstock.processors (pipeline, processor, kind)
    values (open_processor.pipeline, open_processor.processor, open_processor.kind)
    on conflict (pipeline, processor) do update
      set kind = excluded.kind, error = null, error_at = null, retired_at = null;
    insert into penstock.processor_progress (pipeline, processor)
    select open_processor.pipeline, open_processor.processor
    where not exists (
      select from penstock.latest_processor_progress(open_processor.pipeline, open_processor.processor));
  end if;

  return query
    select p.generation, p.start_positions, s.cursor, p.rebuilding, s.tailers,
      coalesce((
        select jsonb_agg(jsonb_build_object('type', r.type, 'data', r.data) order by r.position desc)
        from (
          select m.type, m.data, m.position from message_store.messages m
          where m.stream_name = penstock.backing_stream(p.pipeline, p.processor)
          order by m.position desc limit 2
        ) r), '[]')
    from penstock.processors p
    cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s
    where p.pipeline = open_processor.pipeline and p.processor = open_processor.processor;
end
$$;

-- Set the tailers of queues that a processor has not read yet.
create or replace function penstock.place_tailers(pipeline text, processor text, tailers jsonb)
returns void language plpgsql
as $$
#variable_conflict use_column
declare
  old penstock.processor_progress;
  new penstock.processor_progress;
begin
  perform from penstock.processors p
  where p.pipeline = place_tailers.pipeline and p.processor = place_tailers.processor
  for update;
  select s.* into old
  from penstock.latest_processor_progress(place_tailers.pipeline, place_tailers.processor) s;
  new := old;
  new.tailers := place_tailers.tailers || old.tailers;
  perform penstock.replace_processor_progress(old, new);
end
$$;

-- Which of these processors have messages to read, in which of their queues: after the tailer's position, up
-- to the given end (null: the head of the queue). A waiting run calls this for all its processors together.
create or replace function penstock.messages_to_read(
  processors text[], queues text[], positions bigint[], ends bigint[])
returns table (processor text, queue text)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  watermark constant bigint := penstock.watermark();
begin
  return query
    with readers as (
      -- a processor, a queue that it reads, and between which positions
      select r.processor, r.queue, r."position", r."end"
      from unnest(processors, queues, positions, ends) as r(processor, queue, "position", "end")
    ), heads as materialized (
      -- a queue and the position of its last message at or below the watermark
      select q.queue,
        case when message_store.is_category(q.queue::varchar)
          then penstock.category_head(q.queue::varchar, watermark)
          else coalesce(message_store.stream_version(q.queue::varchar), -1)
        end as head
      from (select distinct r.queue from readers r) q
    )
    select r.processor, r.queue
    from readers r
    join heads h on h.queue = r.queue
    where least(h.head, r."end") > r."position";
end
$$;

create or replace function penstock.refuse_step(processor text, reason text)
returns void language plpgsql
as $$
begin
  raise exception using errcode = 'PS071',
    message = format('a step of %s was not committed: %s', processor, reason),
    detail = jsonb_build_object('processor', processor, 'reason', reason);
end
$$;

-- Commit a step: publish what was staged for it, write its Attempt, move its tailers; or raise.
create or replace function penstock.commit_step(
  pipeline text,
  processor text,
  snapshot jsonb,                          -- as in the backing stream, with its hash
  tokens uuid[],
  counts bigint[],
  report jsonb,                            -- messages_in; and a source's next cursor
  whole_categories boolean default false
)
returns table (published bigint, first_position bigint, last_position bigint)
language plpgsql
as $$
#variable_conflict use_column
declare
  backing constant varchar := penstock.backing_stream(commit_step.pipeline, commit_step.processor);
  hash constant text := snapshot ->> 'hash';
  new_tables constant text[] := array(
    select jsonb_array_elements_text(coalesce(report -> 'tables', '[]')));
  new_folders constant text[] := array(
    select jsonb_array_elements_text(coalesce(report -> 'folders', '[]')));
  rebuilt constant boolean := coalesce((report ->> 'rebuilt')::boolean, false);
  state penstock.processors;
  old penstock.processor_progress;
  new penstock.processor_progress;
  last record;
  moved record;
  result record;
begin
  select p.* into state from penstock.processors p
  where p.pipeline = commit_step.pipeline and p.processor = commit_step.processor
  for update;

  select m.type, m.data ->> 'hash' as hash into last
  from message_store.messages m
  where m.stream_name = backing order by m.position desc limit 1;
  if last.type is distinct from 'Snapshot' or last.hash is distinct from hash then
    perform penstock.refuse_step(processor, 'its snapshot is not the last one');
  elsif state.generation is distinct from (snapshot ->> 'generation')::int then
    perform penstock.refuse_step(processor, 'the pipeline was restarted from scratch meanwhile');
  end if;

  select s.* into old from penstock.latest_processor_progress(commit_step.pipeline, commit_step.processor) s;
  new := old;
  for moved in
    select r.queue, (r.range ->> 0)::bigint as "from", r.range -> 1 as "to",
      (old.tailers ->> r.queue)::bigint as position
    from jsonb_each(snapshot -> 'ranges') as r(queue, range)
  loop
    if moved.position <> moved."from" then
      perform penstock.refuse_step(processor,
        format('its tailer of %s is at %s, not at %s', moved.queue, moved.position, moved."from"));
    end if;
    new.tailers := new.tailers || jsonb_build_object(moved.queue, moved."to");
  end loop;

  select p.* into result from penstock.publish_staged(
    tokens, counts,
    jsonb_build_object('pipeline', pipeline, 'processor', processor, 'delivery', hash),
    whole_categories) p;

  perform message_store.write_message(
    gen_random_uuid()::varchar, backing,
    case when result.published = 0 then 'NilAttempt' else 'Attempt' end,
    jsonb_strip_nulls(jsonb_build_object(
      'hash', hash, 'published', result.published, 'first_position', result.first_position,
      'last_position', result.last_position, 'cursor', report -> 'cursor', 'files', report -> 'files',
      'number', snapshot -> 'number')));   -- of a source: retention may remove the Snapshot

  new.steps := old.steps + 1;
  new.messages_in := old.messages_in + coalesce((report ->> 'messages_in')::bigint, 0);
  new.messages_out := old.messages_out + result.published;
  new.last_step_at := clock_timestamp();
  if report ? 'cursor' then
    new.cursor := report -> 'cursor';
  end if;
  perform penstock.replace_processor_progress(old, new);

  update penstock.processors p             -- most steps change nothing here
  set tables = array(select unnest(p.tables) union select unnest(new_tables) order by 1),
    folders = array(select unnest(p.folders) union select unnest(new_folders) order by 1),
    rebuilding = p.rebuilding and not rebuilt,
    error = null, error_at = null
  where p.pipeline = commit_step.pipeline and p.processor = commit_step.processor
    and (not p.tables @> new_tables or not p.folders @> new_folders or p.rebuilding and rebuilt
      or p.error is not null);
  return query select result.published, result.first_position, result.last_position;
end
$$;

-- Record a step of an archive: how many messages it has moved, and how long that took.
create or replace function penstock.record_archived(
  pipeline text, processor text, moved bigint, seconds double precision)
returns void language plpgsql
as $$
#variable_conflict use_column
declare
  old penstock.processor_progress;
  new penstock.processor_progress;
begin
  perform from penstock.processors p
  where p.pipeline = record_archived.pipeline and p.processor = record_archived.processor
  for update;
  select s.* into old
  from penstock.latest_processor_progress(record_archived.pipeline, record_archived.processor) s;
  new := old;
  new.steps := old.steps + 1;
  new.messages_in := old.messages_in + record_archived.moved;
  new.messages_out := old.messages_out + record_archived.moved;
  new.last_step_at := clock_timestamp();
  new.last_step_seconds := record_archived.seconds;
  perform penstock.replace_processor_progress(old, new);
end
$$;

-- Store the error that stopped a processor.
create or replace function penstock.fail_step(pipeline text, processor text, hash text, error text)
returns void language sql volatile
as $$
  update penstock.processors p set error = fail_step.error, error_at = clock_timestamp()
  where p.pipeline = fail_step.pipeline and p.processor = fail_step.processor;
$$;

-- Stage copies of messages for an errors queue, each with its error. They have to be messages of the step's
-- input: an error for any other position is refused, since it would be lost.
create or replace function penstock.stage_errors(
  token uuid,
  queue text,
  positions bigint[],
  errors text[],
  input text,                              -- the queue that the step reads
  after bigint,                            -- the range of it, as the Snapshot has it
  until bigint,
  types text[] default '{}',               -- that it takes; empty: all
  archived jsonb default '[]'              -- messages that the caller has read from the archive
)
returns bigint language plpgsql
as $$
declare
  is_category constant boolean := message_store.is_category(input::varchar);
  count bigint;
  unmatched record;
begin
  insert into penstock.stagings (token) values (stage_errors.token) on conflict do nothing;
  insert into penstock.staged (token, ordinal, stream_name, category, type, data, metadata)
  select stage_errors.token, e.ordinality,
    case when not message_store.is_category(queue::varchar) then queue end,
    message_store.category(queue::varchar), m.type, m.data,
    coalesce(m.metadata, '{}') || jsonb_build_object(
      'error', e.error, 'failed_stream_name', m.stream_name, 'failed_global_position',
      m.global_position, 'causation_id', m.id,
      'correlation_id', coalesce(m.metadata ->> 'correlation_id', m.id::text))
  from unnest(positions, errors) with ordinality as e(position, error, ordinality)
  join (
    -- the messages at these positions, wherever they are
    select m.id, m.stream_name, m.type, m."position", m.global_position, m.data, m.metadata
    from message_store.messages m where m.global_position = any (positions)
    union all
    select a.* from jsonb_to_recordset(archived) as a(
      id uuid, stream_name text, type text, "position" bigint, global_position bigint, data jsonb,
      metadata jsonb)
    where not exists (
      select from message_store.messages m where m.global_position = a.global_position)
  ) m on m.global_position = e.position
    and case when is_category
      then message_store.category(m.stream_name) = input and m.global_position > after
        and m.global_position <= until
      else m.stream_name = input and m.position > after and m.position <= until end
    and (types = '{}' or m.type = any (types));
  get diagnostics count = row_count;
  if count = cardinality(positions) then
    return count;
  end if;

  -- an error whose message was not staged
  select e.position, e.error into unmatched
  from unnest(positions, errors) with ordinality as e(position, error, ordinality)
  where not exists (
    select from penstock.staged s
    where s.token = stage_errors.token and s.ordinal = e.ordinality)
  order by e.ordinality limit 1;
  raise exception using errcode = 'PS072',
    message = format('an error row has global_position %s, which is no message of the step''s input %s',
      coalesce(unmatched.position::text, 'null'), input),
    detail = jsonb_build_object('input', input, 'global_position', unmatched.position,
      'error', unmatched.error);
end
$$;

-- Of the errors staged under these tokens keep the first for each message: a function may make several rows
-- of one message, with errors in several outputs or tasks. Returns how many were deleted, by token.
create or replace function penstock.drop_repeated_errors(tokens uuid[])
returns table (token uuid, dropped bigint) language sql volatile
as $$
  with gone as (
    -- every copy of a message but its first; by ctid, since no row is updated here, and a join that is
    -- planned with old statistics may be a nested loop
    delete from only penstock.staged d
    where d.ctid = any (array(
      select r.ctid
      from (
        select s.ctid, row_number() over (
          partition by s.metadata -> 'failed_global_position'
          order by penstock.staged_order(tokens, s.token, s.ordinal)) as copy
        from only penstock.staged s where s.token = any (tokens)
      ) r
      where r.copy > 1))
    returning d.token
  )
  select g.token, count(*) from gone g group by g.token
$$;

-- Start a processor from scratch: tailers return to the beginning, or to the given positions. A processor that
-- is `rebuilding` fills a new table, and swaps it with the old one later.
create or replace function penstock.restart_processor(
  pipeline text, processor text, start_positions jsonb, rebuilding boolean)
returns void language plpgsql
as $$
#variable_conflict use_column
declare
  old penstock.processor_progress;
  new penstock.processor_progress;
begin
  update penstock.processors p
  set generation = p.generation + 1, start_positions = restart_processor.start_positions,
    rebuilding = restart_processor.rebuilding, error = null, error_at = null
  where p.pipeline = restart_processor.pipeline and p.processor = restart_processor.processor;
  select s.* into old
  from penstock.latest_processor_progress(restart_processor.pipeline, restart_processor.processor) s;
  new := old;
  new.tailers := restart_processor.start_positions;
  perform penstock.replace_processor_progress(old, new);
end
$$;

-- Retire a processor: retention does not wait for it. If it runs again, it continues from its tailers. Returns
-- whether there is such a processor.
create or replace function penstock.retire_processor(pipeline text, processor text)
returns boolean language plpgsql
as $$
#variable_conflict use_column
begin
  update penstock.processors p set retired_at = coalesce(p.retired_at, now())
  where p.pipeline = retire_processor.pipeline and p.processor = retire_processor.processor;
  return found;
end
$$;
