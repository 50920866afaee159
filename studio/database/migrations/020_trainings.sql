-- Trainings: jobs of the kind `train`. `title` is what people call a job that no prompt describes.
ALTER TABLE jobs ADD COLUMN title TEXT NOT NULL DEFAULT '';

CREATE TABLE trainings (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,                           -- of the LoRA
    asked TEXT NOT NULL,                          -- JSON: studio/jobs/training.py, pictures and captions included
    saved_step INTEGER NOT NULL DEFAULT 0,        -- of the newest state on disk
    pause_requested INTEGER NOT NULL DEFAULT 0,
    loras TEXT NOT NULL DEFAULT '[]'              -- JSON: the refs under which its result is in loras/
) STRICT;

-- The curve, thinned: each point is the mean loss of the steps since the one before.
CREATE TABLE training_points (
    job_id TEXT NOT NULL REFERENCES trainings (job_id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    loss REAL NOT NULL,
    learning_rate REAL NOT NULL,
    PRIMARY KEY (job_id, step)
) STRICT, WITHOUT ROWID;

-- Pictures made while it learns; their files are in training/<job>/shown/.
CREATE TABLE training_samples (
    job_id TEXT NOT NULL REFERENCES trainings (job_id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    number INTEGER NOT NULL,                      -- of the prompt
    prompt TEXT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    PRIMARY KEY (job_id, step, number)
) STRICT, WITHOUT ROWID;
