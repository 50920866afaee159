"""REST's routes, a module for each kind of thing; what is whose they ask visit.py."""
