"""Costs of jobs: estimated seconds from history, chip seconds, and money."""
