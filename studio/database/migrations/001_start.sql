-- Times are seconds since 1970. Columns that hold JSON say so.

CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,                          -- studio/jobs/states.py
    recipe TEXT NOT NULL,                         -- JSON, resolved
    model TEXT NOT NULL,
    shape TEXT NOT NULL,
    created_at REAL NOT NULL,
    queued_at REAL NOT NULL,                      -- the order of the queue; a retry goes to the end
    started_at REAL,
    finished_at REAL,
    phase TEXT NOT NULL DEFAULT '',
    phase_done INTEGER NOT NULL DEFAULT 0,
    phase_total INTEGER NOT NULL DEFAULT 0,
    phase_detail TEXT NOT NULL DEFAULT '',
    step INTEGER NOT NULL DEFAULT 0,
    steps INTEGER NOT NULL,
    eta_s REAL,                                   -- as of the last report
    overtaken INTEGER NOT NULL DEFAULT 0,         -- how often a later job ran first
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    compiles INTEGER,
    timings TEXT NOT NULL DEFAULT '{}',           -- JSON
    error TEXT,                                   -- JSON: title, detail, advice
    outputs TEXT NOT NULL DEFAULT '[]'            -- JSON, as finished
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, queued_at);
CREATE INDEX jobs_by_time ON jobs (created_at);

-- INTEGER PRIMARY KEY without AUTOINCREMENT: the next id is the highest plus one, so ids have no gaps, also after a
-- transaction that was undone.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,                          -- '' for events of the engine, which everybody sees
    job_id TEXT,
    at REAL NOT NULL,
    data TEXT NOT NULL                            -- JSON
) STRICT;

CREATE TABLE previews (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    jpeg BLOB NOT NULL
) STRICT;

CREATE TABLE outputs (
    id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,                           -- image or video
    file TEXT NOT NULL,                           -- inside outputs/
    thumb TEXT NOT NULL,                          -- inside outputs/
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    frames INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    model TEXT NOT NULL,
    prompt TEXT NOT NULL,
    recipe TEXT NOT NULL,                         -- JSON; makes this one output again
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX outputs_by_time ON outputs (created_at);
CREATE INDEX outputs_by_job ON outputs (job_id);

-- The one worker, as it last described itself.
CREATE TABLE engine (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    state TEXT NOT NULL,                          -- studio/jobs/engine.py
    activity TEXT NOT NULL DEFAULT '',
    pid INTEGER,
    device TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',               -- resident
    shapes TEXT NOT NULL DEFAULT '{}',            -- JSON: shape -> warm, disk or cold, of the resident model
    phase TEXT NOT NULL DEFAULT '',
    phase_done INTEGER NOT NULL DEFAULT 0,
    phase_total INTEGER NOT NULL DEFAULT 0,
    error TEXT,                                   -- JSON: title, detail, advice
    heartbeat_at REAL NOT NULL DEFAULT 0
) STRICT;
INSERT INTO engine (id, state) VALUES (1, 'stopped');

-- What was measured, newest last; a NULL was not part of that run.
CREATE TABLE timings (
    id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    shape TEXT NOT NULL,
    batch_size INTEGER NOT NULL,
    load_s REAL,
    compile_s REAL,
    cache_s REAL,                                 -- as compile_s, when the compilation cache had the programs
    step_s REAL,
    fixed_s REAL,                                 -- encode, decode and save
    at REAL NOT NULL
) STRICT;
CREATE INDEX timings_by_shape ON timings (model, shape);
