-- The order of the queue, apart from the time: people move their jobs. A job's position counts only while it waits.
ALTER TABLE jobs ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN is_placed INTEGER NOT NULL DEFAULT 0;    -- put where it is by hand
ALTER TABLE jobs ADD COLUMN is_cleared INTEGER NOT NULL DEFAULT 0;   -- ended, and taken off the queue's list
UPDATE jobs SET position = (
    SELECT count(*) FROM jobs AS earlier
    WHERE earlier.state = 'queued' AND (earlier.queued_at, earlier.rowid) <= (jobs.queued_at, jobs.rowid)
) WHERE state = 'queued';
DROP INDEX jobs_by_state;
CREATE INDEX jobs_by_state ON jobs (state, position);
CREATE INDEX jobs_by_owner ON jobs (owner, started_at);

-- Whose waiting jobs stay where they are until they say otherwise.
CREATE TABLE pauses (
    owner TEXT PRIMARY KEY,
    at REAL NOT NULL
) STRICT;

-- What the job was expected to take when it started, and what it took: how far estimates can be trusted.
ALTER TABLE timings ADD COLUMN estimated_s REAL;
ALTER TABLE timings ADD COLUMN took_s REAL;

-- Where each owner wants to be told of jobs that ended. Events up to `cursor` are told, or were given up.
CREATE TABLE webhooks (
    owner TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,          -- at the event after the cursor
    next_at REAL NOT NULL DEFAULT 0,
    told_at REAL,                                 -- the last attempt, and how it went
    told TEXT NOT NULL DEFAULT ''
) STRICT;
