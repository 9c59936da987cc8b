-- Snapshots of deciders have versioned rows.

-- they are only a beginning: decisions make them again
drop table if exists penstock.decider_snapshots cascade;
