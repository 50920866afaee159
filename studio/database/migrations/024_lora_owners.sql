-- Whose training made a LoRA, by its ref: they may delete it although no admin, also after the training was deleted.
CREATE TABLE lora_owners (
    ref TEXT PRIMARY KEY,
    owner TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT OR REPLACE INTO lora_owners (ref, owner)
SELECT json_each.value, jobs.owner FROM trainings JOIN jobs ON jobs.id = job_id, json_each(trainings.loras)
WHERE jobs.state = 'done' ORDER BY jobs.finished_at;
