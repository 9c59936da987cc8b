-- Reading a category as Message DB's clients call it. The rules are penstock.get_category_messages'.

create or replace function message_store.get_category_messages(
  category varchar,
  "position" bigint default 1,
  batch_size bigint default 1000,
  correlation varchar default null,
  consumer_group_member bigint default null,
  consumer_group_size bigint default null,
  condition varchar default null
)
returns setof message_store.message language plpgsql
as $$
begin
  return query
    select * from penstock.get_category_messages(
      get_category_messages.category,
      get_category_messages.position,
      get_category_messages.batch_size,
      get_category_messages.correlation,
      get_category_messages.consumer_group_member,
      get_category_messages.consumer_group_size,
      get_category_messages.condition
    );
end
$$;
