-- The preset that a job's settings came from, whatever was changed since; its outputs are found by it.
ALTER TABLE jobs ADD COLUMN preset TEXT;
CREATE INDEX jobs_by_preset ON jobs (preset) WHERE preset IS NOT NULL;
