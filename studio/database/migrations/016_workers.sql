-- Several workers may claim from one queue: a row for each, as it last described and measured itself. `local` is the one
-- that the app keeps alive itself; it takes over what the one-row tables knew of it.
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,                          -- studio/jobs/workers.py
    activity TEXT NOT NULL DEFAULT '',
    pid INTEGER,
    device TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',               -- resident
    shapes TEXT NOT NULL DEFAULT '{}',            -- JSON: shape -> warm, disk or cold, of the resident model
    phase TEXT NOT NULL DEFAULT '',
    phase_done INTEGER NOT NULL DEFAULT 0,
    phase_total INTEGER NOT NULL DEFAULT 0,
    error TEXT,                                   -- JSON: title, detail, advice
    heartbeat_at REAL NOT NULL DEFAULT 0,
    outputs_at_once INTEGER NOT NULL DEFAULT 1,   -- that the resident model makes in the time of one
    swap TEXT,                                    -- JSON: what the last switch of models cost; NULL before the first
    chips INTEGER NOT NULL DEFAULT 0,
    chip_price REAL,                              -- US dollars for a chip and an hour
    mesh TEXT NOT NULL DEFAULT '',                -- of the resident model
    devices TEXT NOT NULL DEFAULT '[]',           -- JSON: pipelines/runtime/devices/memory.py
    host TEXT NOT NULL DEFAULT '{}',              -- JSON: bytes of the worker and of the whole machine
    compiling INTEGER NOT NULL DEFAULT 0,         -- programs, in the background too
    measured_at REAL NOT NULL DEFAULT 0,
    cache_cleared_at REAL NOT NULL DEFAULT 0      -- what was compiled before is no longer on disk
) STRICT;
INSERT INTO workers
    (id, state, activity, pid, device, model, shapes, phase, phase_done, phase_total, error, heartbeat_at,
    outputs_at_once, swap, chips, chip_price, mesh, devices, host, compiling, measured_at, cache_cleared_at)
    SELECT 'local', engine.state, activity, pid, device, model, shapes, phase, phase_done, phase_total, error,
        heartbeat_at, outputs_at_once, swap, chips, chip_price, mesh, devices, host, compiling, measured_at,
        cache_cleared_at
    FROM engine, machine;
DROP TABLE engine;
DROP TABLE machine;

-- What a job is, so who can run it; who holds it, which try that is (whoever writes for a job names both), until when.
ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'generate';
ALTER TABLE jobs ADD COLUMN worker TEXT;
ALTER TABLE jobs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN lease_until REAL;
UPDATE jobs SET worker = 'local', attempt = 1 WHERE started_at IS NOT NULL;

-- Seconds are those of one device. '': measured before this was written down, on the machine of the local worker.
ALTER TABLE timings ADD COLUMN device TEXT NOT NULL DEFAULT '';
