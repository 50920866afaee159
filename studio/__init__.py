"""The studio: page, REST, queue and library around the pipelines.

Two processes share one SQLite file: the app (page and REST, never imports jax or torch) and the worker (owns the
devices). They communicate only through `studio.database`, so a refresh, a crash or a restart loses nothing.
"""

VERSION = "0.1.0"
