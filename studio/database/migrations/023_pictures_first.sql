-- How many pictures the model makes before it learns, and one of them as a recipe: the line's estimates count them.
ALTER TABLE trainings ADD COLUMN prior_pictures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trainings ADD COLUMN prior_recipe TEXT NOT NULL DEFAULT '';
