"""The audit log: logins, refusals and deletions, one line of JSON each, only ever appended.

The app, the worker and the command line write it concurrently, so each line is one write under a file lock. A full log
becomes `audit.jsonl.1`, and so on. What a full disk does not take goes to the server's own log. Prompts are logged only
when refused; passwords and tokens never.
"""

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from pipelines.files.locked import hold_file

log = logging.getLogger(__name__)

MAX_BYTES = 5_000_000
KEPT_FILES = 5
MAX_TEXT_CHARS = 2000


class Audit:
    """The audit log of one data directory."""

    def __init__(self, file: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._file = file
        self._max_bytes = max_bytes

    def note(self, what: str, **fields: Any) -> None:
        """Appends one event with the current time."""
        texts = {name: value[:MAX_TEXT_CHARS] if isinstance(value, str) else value for name, value in fields.items()}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"at": at, "what": what, **texts}, ensure_ascii=False) + "\n"
        try:
            self._append(line)
        except OSError as error:  # on a full disk people must still be able to log in and make room
            log.error("not in %s (%s): %s", self._file, error.strerror, line.rstrip())

    def _append(self, line: str) -> None:
        with hold_file(self._file):
            self._rotate(len(line.encode()))
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab") as stream:
                stream.write(line.encode())

    def _rotate(self, coming: int) -> None:
        if not self._file.exists() or self._file.stat().st_size + coming <= self._max_bytes:
            return
        for number in range(KEPT_FILES - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self._file.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}")
