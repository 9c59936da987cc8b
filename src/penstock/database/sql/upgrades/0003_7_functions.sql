-- Functions with other names or arguments.

drop function if exists penstock.readable_until(bigint);
drop function if exists penstock.wanted_locks(
  integer[], text[], varchar[], bigint[], bigint[], integer[], bigint[]);
