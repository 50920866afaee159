"""Who asks, and whether they may: passwords, users, sessions, limits, refusals and the log of them.

Nothing here knows a route or a page: requests come in as their headers and the address they come from. What an owner
may touch is decided where the things are (visit.py).
"""
