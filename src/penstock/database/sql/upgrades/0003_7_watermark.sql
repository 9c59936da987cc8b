-- A reader says after which position it wants the watermark.

drop function if exists penstock.readable_until(bigint);
