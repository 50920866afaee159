"""Authentication and admission: passwords, users, sessions, rate limits, the operator's hooks and the audit log.

Nothing here knows a route or a page: a request is given as its headers and the address that it comes from. Which
objects an owner may access is decided elsewhere (visit.py).
"""
