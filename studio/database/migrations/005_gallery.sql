-- The gallery. An output has a number of its own now, in the order of arrival: pages and the search index name rows by
-- it, which an implicit rowid does not survive (VACUUM gives new ones). It outlives its job, and lies in the trash
-- before it is deleted.
DROP VIEW inputs;
CREATE TABLE numbered_outputs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    job_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,                           -- image or video
    file TEXT NOT NULL,                           -- inside outputs/
    thumb TEXT NOT NULL,                          -- inside outputs/
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    frames INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    model TEXT NOT NULL,
    shape TEXT NOT NULL,
    prompt TEXT NOT NULL,
    recipe TEXT NOT NULL,                         -- JSON; makes this one output again
    created_at REAL NOT NULL,
    made_with TEXT NOT NULL DEFAULT '{}',         -- JSON: studio/worker/provenance.py
    is_favourite INTEGER NOT NULL DEFAULT 0,
    tags TEXT NOT NULL DEFAULT '[]',              -- JSON
    trashed_at REAL                               -- NULL: in the gallery
) STRICT;
INSERT INTO numbered_outputs
    (id, job_id, owner, kind, file, thumb, width, height, frames, seed, model, shape, prompt, recipe, created_at)
    SELECT id, job_id, owner, kind, file, thumb, width, height, frames, seed, model,
        coalesce(json_extract(recipe, '$.shape'), width || 'x' || height || iif(frames > 1, 'x' || frames, '')),
        prompt, recipe, created_at
    FROM outputs ORDER BY created_at, id;
DROP TABLE outputs;
ALTER TABLE numbered_outputs RENAME TO outputs;
CREATE INDEX outputs_by_job ON outputs (job_id);
-- Holds every column that a filter asks for, so that counting never reads the wide rows.
CREATE INDEX outputs_by_filters ON outputs
    (owner, trashed_at, number, model, shape, kind, is_favourite, created_at);

CREATE VIEW inputs AS
    SELECT id, owner, 'uploads' AS folder, sha || '.png' AS file, width, height FROM uploads
    UNION ALL
    SELECT id, owner, 'outputs' AS folder, file, width, height FROM outputs WHERE kind = 'image';

-- Words of prompts and tags. Trigrams find any part of a word, and scripts that are written without spaces.
CREATE VIRTUAL TABLE outputs_text USING fts5 (
    prompt, tags, content = 'outputs', content_rowid = 'number', tokenize = 'trigram'
);
INSERT INTO outputs_text (outputs_text) VALUES ('rebuild');
CREATE TRIGGER outputs_text_added AFTER INSERT ON outputs BEGIN
    INSERT INTO outputs_text (rowid, prompt, tags) VALUES (new.number, new.prompt, new.tags);
END;
CREATE TRIGGER outputs_text_removed AFTER DELETE ON outputs BEGIN
    INSERT INTO outputs_text (outputs_text, rowid, prompt, tags) VALUES ('delete', old.number, old.prompt, old.tags);
END;
CREATE TRIGGER outputs_text_changed AFTER UPDATE OF prompt, tags ON outputs BEGIN
    INSERT INTO outputs_text (outputs_text, rowid, prompt, tags) VALUES ('delete', old.number, old.prompt, old.tags);
    INSERT INTO outputs_text (rowid, prompt, tags) VALUES (new.number, new.prompt, new.tags);
END;

-- A job lists its outputs as JSON; what is in the trash says so there too, and what is deleted is listed no more.
CREATE TRIGGER outputs_trashed AFTER UPDATE OF trashed_at ON outputs
WHEN (old.trashed_at IS NULL) <> (new.trashed_at IS NULL) BEGIN
    UPDATE jobs SET outputs = (
        SELECT json_group_array(json(iif(
            json_extract(value, '$.id') = new.id,
            json_set(value, '$.is_trashed', json(iif(new.trashed_at IS NULL, 'false', 'true'))),
            value
        ))) FROM json_each(jobs.outputs)
    ) WHERE id = new.job_id;
END;
CREATE TRIGGER outputs_deleted AFTER DELETE ON outputs BEGIN
    UPDATE jobs SET outputs = (
        SELECT json_group_array(json(value)) FROM json_each(jobs.outputs) WHERE json_extract(value, '$.id') <> old.id
    ) WHERE id = old.job_id;
END;
