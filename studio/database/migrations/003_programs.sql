-- What a job needs compiled: its shape, and where pictures beside it matter, how many of which size.
ALTER TABLE jobs ADD COLUMN programs TEXT NOT NULL DEFAULT '';
UPDATE jobs SET programs = shape;

-- Sizes in pixels say which programs an input needs, before anybody opens its file.
DROP VIEW inputs;
CREATE VIEW inputs AS
    SELECT id, owner, 'uploads' AS folder, sha || '.png' AS file, width, height FROM uploads
    UNION ALL
    SELECT id, owner, 'outputs' AS folder, file, width, height FROM outputs WHERE kind = 'image';
