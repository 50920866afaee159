"""The REST routes, one module for each kind of thing; visit.py checks ownership."""
