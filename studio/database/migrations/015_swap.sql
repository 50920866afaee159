-- JSON: what the last switch to another model cost, part by part; NULL before the first one.
ALTER TABLE engine ADD COLUMN swap TEXT;
