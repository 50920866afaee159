"""Recipes are read, filled in and joined here; the schedulers and step caches that they name are listed."""
