"""The command line, one file per group of commands; `python -m pipelines` starts it."""
