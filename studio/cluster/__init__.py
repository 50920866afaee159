"""Workers on other machines, over Ray: `python app.py --engine ray`, and `python -m studio.worker join` on each.

SQLite stays the only truth. The dispatcher (a child of the app, in place of the worker) claims jobs, hands each to a
worker's actor, pulls what the worker tells, and stores it as a local worker would; workers never see the database.
Ray is needed for this alone: `ray_cluster.py` is the only module that imports it.
"""
