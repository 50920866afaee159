-- What of a job's recipe is not followed, as sentences: words that no encoder reads, weights that a model ignores.
ALTER TABLE jobs ADD COLUMN notes TEXT NOT NULL DEFAULT '{"notes": []}';  -- JSON, with their codes
