"""The families of models, one folder each; what they share is in base.py."""
