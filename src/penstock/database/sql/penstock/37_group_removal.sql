-- Removing a group, with all that it has routed and handled.
--
-- The promise: the group is gone at once, and no transaction takes long, however many partitions and messages
-- the group has. How it is kept: one transaction deletes its row in `consumer_groups`. From then on nobody
-- finds the group: retention does not wait for it, claims and acks are refused, and its id can be registered
-- again, as another group. What it has routed and handled is deleted later, batch by batch, each from the end of
-- the one before: so a batch does not visit the dead index entries of those before it.
--
-- The first transaction holds the group's lock: so a transaction that is routing has ended, and no other one
-- routes afterwards. A partition is deleted before its states: an ack that holds the partition's lock has
-- ended then, and a later one does not find the partition.
--
-- A client may end before all rows are deleted. The group's row in `removed_groups` stays until then, and the
-- next removal, of whichever group, goes on with it.

create or replace function penstock.remove_consumer_group(group_id text)
returns void language plpgsql volatile
as $$
declare
  own constant penstock.consumer_groups := penstock.find_group(group_id);
begin
  perform penstock.refuse_old_snapshot();
  perform pg_advisory_xact_lock(1885693286, own.id);
  delete from penstock.consumer_groups g where g.id = own.id;
  if not found then
    perform penstock.refuse_unknown_group(group_id);  -- another transaction removed it
  end if;
  insert into penstock.removed_groups (id, group_id) values (own.id, own.group_id);
end
$$;

-- Delete at most `most` rows of one table (or partitions, with their states) of a group that was removed. Pass
-- what the last call returned: the group, the table, and the key to continue from; nulls in the first call.
-- Returns nulls when nothing is left of any group.
create or replace function penstock.delete_removed_group(
  inout group_pk integer, inout from_table text, inout feed bigint, inout place bigint,
  most integer default 10000)
language plpgsql volatile
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  own constant integer := coalesce(
    delete_removed_group.group_pk, (select min(r.id) from penstock.removed_groups r));
  after_feed constant bigint := coalesce(delete_removed_group.feed, -9223372036854775808);
  after_place constant bigint := coalesce(delete_removed_group.place, 0);
  deleted bigint := 0;
  offset_ids bigint[];
begin
  perform penstock.refuse_old_snapshot();
  group_pk := own;
  from_table := coalesce(from_table, 'group_feeds');

  if from_table = 'group_feeds' then
    with next as (
      select f.feed, f.global_position from penstock.group_feeds f
      where f.group_pk = own and (f.feed, f.global_position) >= (after_feed, after_place)
      order by f.feed, f.global_position limit most
    ), gone as (
      delete from penstock.group_feeds f using next n
      where f.group_pk = own and f.feed = n.feed and f.global_position = n.global_position
    )
    select count(*) over (), n.feed, n.global_position into deleted, feed, place from next n
    order by n.feed desc, n.global_position desc limit 1;
  elsif from_table = 'feed_partitions' then
    with next as (
      select f.feed, f.offset_id from penstock.feed_partitions f
      where f.group_pk = own and (f.feed, f.offset_id) >= (after_feed, after_place)
      order by f.feed, f.offset_id limit most
    ), gone as (
      delete from penstock.feed_partitions f using next n
      where f.group_pk = own and f.feed = n.feed and f.offset_id = n.offset_id
    )
    select count(*) over (), n.feed, n.offset_id into deleted, feed, place from next n
    order by n.feed desc, n.offset_id desc limit 1;
  elsif from_table = 'partitions' then
    select count(*), max(n.feed), array_agg(n.offset_id) into deleted, feed, offset_ids
    from (
      select p.feed, p.offset_id from penstock.partitions p
      where p.group_pk = own and p.feed >= after_feed order by p.feed limit most
    ) n;
    delete from penstock.partitions p where p.offset_id = any (offset_ids);
    delete from penstock.partition_states s where s.offset_id = any (offset_ids);
  elsif from_table = 'group_replays' then
    with next as (
      select r.feed from penstock.group_replays r
      where r.group_pk = own and r.feed >= after_feed order by r.feed limit most
    ), gone as (
      delete from penstock.group_replays r using (select distinct n.feed from next n) n
      where r.group_pk = own and r.feed = n.feed
    )
    select count(*), max(n.feed) into deleted, feed from next n;
  else
    delete from penstock.group_rechecks r where r.group_pk = own;
    delete from penstock.group_fanouts f where f.group_pk = own;
    delete from penstock.claim_cursors f where f.group_pk = own;
    delete from penstock.group_types t where t.group_pk = own;
    delete from penstock.group_progress p where p.group_pk = own;
    delete from penstock.removed_groups r where r.id = own;
    group_pk := (select min(r.id) from penstock.removed_groups r);
  end if;

  if deleted is distinct from most then  -- that table is done
    from_table := case from_table
      when 'group_feeds' then 'feed_partitions'
      when 'feed_partitions' then 'partitions'
      when 'partitions' then 'group_replays'
      when 'group_replays' then 'others'
    end;
    feed := null;
    place := null;
  end if;
end
$$;
