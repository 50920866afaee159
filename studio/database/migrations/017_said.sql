-- The code and values of texts for people, as JSON beside the English text (pipelines/messages.py); NULL: it has none.
ALTER TABLE workers ADD COLUMN activity_said TEXT;
ALTER TABLE workers ADD COLUMN device_said TEXT;
ALTER TABLE webhooks ADD COLUMN told_said TEXT;
