ALTER TABLE jobs ADD COLUMN revision TEXT NOT NULL DEFAULT '';  -- of the weights that made its outputs
