-- What lasts is measured by a clock that nobody sets (CLOCK_MONOTONIC, the same in all processes of one machine): a job is
-- charged from `held_from_s`, when it was claimed or its machine last shared anew, and a worker's last heartbeat is
-- `beat_s`. Columns that end in `_at` stay what people read on a calendar. A job that runs while this is applied is
-- charged what was its own until then.
ALTER TABLE jobs RENAME COLUMN shared_at TO held_from_s;
UPDATE jobs SET held_from_s = NULL;
ALTER TABLE workers ADD COLUMN beat_s REAL NOT NULL DEFAULT 0;
