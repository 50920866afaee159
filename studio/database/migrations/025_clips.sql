-- Clips that people bring along to learn from are uploads of several frames, each one an MP4.
ALTER TABLE uploads ADD COLUMN frames INTEGER NOT NULL DEFAULT 1;

-- What a recipe may start from: pictures.
DROP VIEW inputs;
CREATE VIEW inputs AS
    SELECT id, owner, 'uploads' AS folder, sha || '.png' AS file, width, height FROM uploads WHERE frames = 1
    UNION ALL
    SELECT id, owner, 'outputs' AS folder, file, width, height FROM outputs WHERE kind = 'image';

-- What a training may learn from: pictures and videos.
CREATE VIEW lessons AS
    SELECT id, owner, 'uploads' AS folder, sha || iif(frames > 1, '.mp4', '.png') AS file, frames > 1 AS is_video
    FROM uploads
    UNION ALL
    SELECT id, owner, 'outputs' AS folder, file, kind = 'video' AS is_video FROM outputs;
