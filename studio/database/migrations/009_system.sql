-- What each job has cost so far, over all of its attempts, and each output its share. Without a price there is no money.
ALTER TABLE jobs ADD COLUMN chip_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN cost_usd REAL;
ALTER TABLE outputs ADD COLUMN chip_seconds REAL;   -- NULL: made before this was counted
ALTER TABLE outputs ADD COLUMN cost_usd REAL;
CREATE INDEX jobs_by_cost ON jobs (owner, chip_seconds, cost_usd);

-- The machine under the worker, as it last measured it.
CREATE TABLE machine (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    chips INTEGER NOT NULL DEFAULT 0,
    chip_price REAL,                              -- US dollars for a chip and an hour
    mesh TEXT NOT NULL DEFAULT '',                -- of the resident model
    devices TEXT NOT NULL DEFAULT '[]',           -- JSON: pipelines/runtime/devices/memory.py
    host TEXT NOT NULL DEFAULT '{}',              -- JSON: bytes of the worker and of the whole machine
    compiling INTEGER NOT NULL DEFAULT 0,         -- programs, in the background too
    measured_at REAL NOT NULL DEFAULT 0,
    cache_cleared_at REAL NOT NULL DEFAULT 0      -- what was compiled before is no longer on disk
) STRICT;
INSERT INTO machine (id) VALUES (1);
