"""The background pipeline manager: one process that claims jobs, keeps one model resident and owns the devices.

`supervisor` runs in the app and keeps that process alive; everything else here runs in it.
"""

CANNOT_START_CODE = 4
"""The exit code of a worker that cannot start; it stores the reason in its row."""

IDLE_FLAG = "--idle"
"""Starts the worker without preparing the default model, because an earlier worker died while preparing it."""

ID_FLAG = "--id"
"""Followed by the worker's id, the key of its row: `--id local-2`."""

LAST_JOB, LOOK = b"\n", b"l"
"""What the app writes to a worker: the running job is your last one; I wrote to the database, where a job may wait."""
