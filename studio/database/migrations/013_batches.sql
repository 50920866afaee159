-- Jobs that run as one batch share the machine: each has the part of it that its outputs are of the batch's, after
-- `alone_s` seconds that the first of them held it alone.
ALTER TABLE jobs ADD COLUMN machine_share REAL NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN alone_s REAL NOT NULL DEFAULT 0;
-- How many outputs the resident model makes in the time of one.
ALTER TABLE engine ADD COLUMN outputs_at_once INTEGER NOT NULL DEFAULT 1;
