"""Writes that must not be lost: repeated until the database takes them."""

import logging
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from studio.storage import passes

RETRY_S = 1.0
T = TypeVar("T")

log = logging.getLogger(__name__)


def insist(work: Callable[[], T]) -> T:
    """Repeats work until the database takes it; raises errors that do not pass by themselves."""
    while True:
        try:
            return work()
        except sqlite3.Error as error:
            if not passes(error):
                raise
            log.warning("the database takes nothing now: %s", error)
            time.sleep(RETRY_S)
