"""How the three demo models in presets/demo were made: what they draw, how they were trained, who judges them.

Only `python -m pipelines train demo-...` comes here; nothing that makes pictures for people does.
"""
