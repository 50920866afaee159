-- A slice of several hosts is one worker, and trains nothing: its hosts share no folder for states.
ALTER TABLE workers ADD COLUMN hosts INTEGER NOT NULL DEFAULT 1;
