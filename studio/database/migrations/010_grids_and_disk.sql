-- Grids: one recipe along two or three axes, one job for each cell, one sheet at the end.
CREATE TABLE grids (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    axes TEXT NOT NULL,                           -- JSON: studio/jobs/many/axes.py
    recipe TEXT NOT NULL,                         -- JSON, resolved
    created_at REAL NOT NULL,
    sheets INTEGER NOT NULL DEFAULT 0,            -- how many were made; a retry of cells makes another one
    output_id TEXT,                               -- the newest sheet
    ended_at REAL                                 -- NULL: cells are awaited
) STRICT;
CREATE INDEX grids_by_owner ON grids (owner, created_at);
CREATE INDEX grids_awaited ON grids (id) WHERE ended_at IS NULL;

CREATE TABLE grid_cells (
    grid_id TEXT NOT NULL REFERENCES grids (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,                       -- page by page, row by row
    job_id TEXT NOT NULL,
    recipe TEXT NOT NULL,                         -- JSON, as queued: a job that was edited is no longer this cell
    PRIMARY KEY (grid_id, place)
) STRICT;

ALTER TABLE outputs ADD COLUMN grid TEXT;         -- JSON: the axes, where the output is the sheet of a grid

-- What the studio's files take, as last measured; a queue that is over the limit takes nothing new.
CREATE TABLE disk (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    used_bytes INTEGER NOT NULL DEFAULT 0,
    limit_bytes INTEGER                           -- NULL: none
) STRICT;
INSERT INTO disk (id) VALUES (1);
