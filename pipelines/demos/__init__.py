"""The three demo models in presets/demo: their data sets, their training, and the judges that score them.

Only `python -m pipelines make-demo demo-...` uses this code; nothing that makes pictures for people does.
"""
