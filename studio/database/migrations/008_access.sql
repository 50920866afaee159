-- Sessions that somebody logged out of before their time; after it they are over anyway.
CREATE TABLE ended_sessions (
    id TEXT PRIMARY KEY,
    until REAL NOT NULL
) STRICT;
