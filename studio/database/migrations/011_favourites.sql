-- A job lists its outputs as JSON; which of them are favourites stands there too, so that a list of jobs can show it.
CREATE TRIGGER outputs_marked AFTER UPDATE OF is_favourite ON outputs
WHEN old.is_favourite <> new.is_favourite BEGIN
    UPDATE jobs SET outputs = (
        SELECT json_group_array(json(iif(
            json_extract(value, '$.id') = new.id,
            json_set(value, '$.favourite', json(iif(new.is_favourite, 'true', 'false'))),
            value
        ))) FROM json_each(jobs.outputs)
    ) WHERE id = new.job_id;
END;

UPDATE jobs SET outputs = (
    SELECT json_group_array(json(iif(
        json_extract(value, '$.id') IN (SELECT id FROM outputs WHERE is_favourite),
        json_set(value, '$.favourite', json('true')),
        value
    ))) FROM json_each(jobs.outputs)
) WHERE id IN (SELECT job_id FROM outputs WHERE is_favourite);
