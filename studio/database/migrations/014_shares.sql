-- A batch that somebody leaves is shared anew by those who stay: `held_s` seconds of the whole machine had been a job's
-- own until `shared_at`, and since then (or since it started) it has `machine_share` of it.
ALTER TABLE jobs RENAME COLUMN alone_s TO held_s;
ALTER TABLE jobs ADD COLUMN shared_at REAL;
UPDATE jobs SET shared_at = started_at + held_s WHERE state = 'running' AND held_s > 0;
