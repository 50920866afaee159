-- Presets that people saved or imported; a thumbnail is presets/<id>.webp in the data directory.
CREATE TABLE presets (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    sha TEXT NOT NULL,                            -- SHA-256 of the whole document: the same one twice is one
    document TEXT NOT NULL,                       -- JSON, without its thumbnail
    origin TEXT NOT NULL,                         -- made, file, link or hub
    origin_name TEXT NOT NULL DEFAULT '',         -- of the file or the repository it came in
    has_thumb INTEGER NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (owner, sha)
) STRICT;
