"""What is asked for: recipes read, filled in and joined, and the schedulers and step caches that they name."""
