-- From version 1 to 2: functions whose arguments have changed. A guard's `seen` is a multirange.

drop function if exists penstock.append_one(varchar, uuid, text, jsonb, jsonb, bigint, jsonb);
drop function if exists penstock.append_one(
  varchar, uuid, text, jsonb, jsonb, bigint, text[], text[], text[], bigint, bigint[]);
drop function if exists penstock.as_guard(text, text[], text[], text[], bigint, bigint[]);
drop function if exists penstock.matching_positions(jsonb, bigint);
drop function if exists penstock.advanced_low(jsonb);
drop function if exists penstock.lock_for_append(varchar, text[], bigint[], bigint[], boolean);
