"""The background pipeline manager: one process that claims jobs, keeps one model resident and owns the devices.

`supervisor` runs in the app and keeps that process alive; everything else here runs in it.
"""

CANNOT_START_CODE = 4
"""The exit code of a worker that cannot start, for the reason it stored in its row."""

IDLE_FLAG = "--idle"
"""Start without preparing the default model: an earlier worker ended while it did."""
