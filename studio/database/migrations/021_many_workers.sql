-- Workers that come and go: since when one holds its model, whether it keeps it whatever waits, whether it takes jobs,
-- which machine it is on, and which of its events are stored (studio/cluster).
ALTER TABLE workers ADD COLUMN model_since REAL NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN is_draining INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN node TEXT NOT NULL DEFAULT '';   -- '': the studio's own machine
ALTER TABLE workers ADD COLUMN epoch TEXT NOT NULL DEFAULT '';  -- of its process, as it names itself
ALTER TABLE workers ADD COLUMN seen INTEGER NOT NULL DEFAULT 0; -- number of the last stored event of that process

-- How many times the machine that ran a job was lost. A job waits for
-- others' models for a time, no longer for a number of jobs.
ALTER TABLE jobs ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs DROP COLUMN overtaken;
