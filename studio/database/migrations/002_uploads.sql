-- Pictures that people bring along. Equal pictures share one file, each owner has a row of their own.
CREATE TABLE uploads (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    sha TEXT NOT NULL,                            -- SHA-256 of the file in uploads/, and its name
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    created_at REAL NOT NULL,                     -- or brought along once more
    UNIQUE (owner, sha)
) STRICT;
CREATE INDEX uploads_by_sha ON uploads (sha);

-- What a job's recipe names in `images`; an upload that no job names goes after a day.
CREATE TABLE job_images (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    image TEXT NOT NULL,
    PRIMARY KEY (job_id, image)
) STRICT;
CREATE INDEX job_images_by_image ON job_images (image);

-- What a recipe may name in `images`: an upload, or a picture that was made here.
CREATE VIEW inputs AS
    SELECT id, owner, 'uploads' AS folder, sha || '.png' AS file FROM uploads
    UNION ALL
    SELECT id, owner, 'outputs' AS folder, file FROM outputs WHERE kind = 'image';
