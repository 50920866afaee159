"""Measures the machine every two seconds, in a thread of its own.

The heartbeat has another thread, because a device that hangs while it is asked must not make the worker look dead.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, NoReturn

import psutil

from pipelines.messages import add_codes, say
from studio.worker.desk import Desk
from studio.worker.resident import Resident

INTERVAL_S = 2.0

log = logging.getLogger(__name__)

MeasureDevices = Callable[[], list[dict[str, Any]]]
"""Measures each device's memory, like pipelines/runtime/devices/memory.py."""

FAKE_DEVICE = {
    "id": 0,
    **add_codes({"kind": say("no device: --fake draws the pictures")}),
    "platform": "fake",
    "coords": None,
    "used_bytes": 0,
    "peak_bytes": None,
    "limit_bytes": None,
}


def watch(desk: Desk, resident: Resident, measure_devices: MeasureDevices) -> NoReturn:
    """Measures until the process ends; never returns."""
    while True:
        try:
            tell(desk, resident, measure_devices)
        except Exception:
            log.exception("the machine is measured again at the next turn")
        time.sleep(INTERVAL_S)


def tell(desk: Desk, resident: Resident, measure_devices: MeasureDevices) -> None:
    """Measures once and stores the figures."""
    family = resident.family  # read once: a swap may come in between
    devices = measure_devices()
    whole = psutil.virtual_memory()
    host = {
        "worker_bytes": psutil.Process().memory_info().rss,
        "used_bytes": whole.total - whole.available,
        "total_bytes": whole.total,
    }
    desk.measure(
        mesh=family.mesh if family else "",
        devices=devices,
        host=host,
        compiling=family.count_compiling() if family else 0,
    )
