-- Deliveries may be published in slices: what is left of one is listed with it.
alter table if exists penstock.deliveries
  add column if not exists slices uuid[] not null default '{}',
  add column if not exists slice_counts bigint[] not null default '{}',
  add column if not exists slices_done bigint not null default 0;
