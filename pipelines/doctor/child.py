"""`python -m pipelines.doctor.child`: runs checks one after the other and tells of each, a JSON object a line.

The task comes as a line of JSON on standard input (examination.py), at whose end the process ends. Before a check its
name is told, so that whoever waits knows what hangs. What JAX and libtpu print goes to standard error. For trying what
the doctor does, `pretends` makes a check's result wrong, or the check refuse, hang, or end the process.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.errors import LumeshError

HANG_S = 3600.0
ORPHAN_EXIT_CODE = 3
OPENING = "devices"
PICTURE = "picture"
COLLECTIVE = "collective "
"""A collective's check is named `collective all-gather`."""

Tell = Callable[[dict[str, Any]], None]


def main() -> None:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(line: dict[str, Any]) -> None:
        channel.write(json.dumps(line) + "\n")
        channel.flush()

    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    run(task, tell)
    os._exit(0)  # what is left to do at an interpreter's end takes seconds, and is for nobody


def _end_with_input() -> None:
    """Ends the process when whoever started it is gone: a check that hangs would keep the chips."""
    while os.read(0, 1):
        pass
    os._exit(ORPHAN_EXIT_CODE)


def run(task: dict[str, Any], tell: Tell) -> None:
    """Opens the devices, tells of them, and runs the task's `checks`; without any, all that there are."""
    started_s = time.perf_counter()
    tell({"begin": OPENING})
    from pipelines import registry

    try:
        registry.start_jax(Path(task["cache_dir"]), allow_cpu=task["allow_cpu"])
    except LumeshError as error:
        tell({"end": OPENING, "verdict": "refused", "detail": str(error)})
        return
    import jax

    from pipelines.doctor import collectives
    from pipelines.doctor.kernels import CHECKS, Place
    from pipelines.runtime.kernels import switches

    devices = jax.local_devices()
    platform = devices[0].platform
    kernels = {check.name: check for check in CHECKS}
    here = [check.name for check in CHECKS if platform in check.platforms and check.is_used()]
    names = [*here, *(COLLECTIVE + name for name in collectives.NAMES if len(devices) > 1), PICTURE]
    seconds = time.perf_counter() - started_s
    opened = {"devices": registry.measure_devices(), "checks": names, "seconds": seconds}
    tell({"end": OPENING, "verdict": "right", **opened})
    switches.choose_by_hand(switches.ALL)
    bad = set(task["off"])
    place = Place(devices=devices, interprets=platform == "cpu")
    for name in names if task["checks"] is None else [name for name in names if name in task["checks"]]:
        pretend = task["pretends"].get(name, "")
        tell({"begin": name})
        started_s = time.perf_counter()
        try:
            _pretend(pretend)
            disturb = _spoil if pretend == "wrong" else lambda found: found
            if name == PICTURE:  # as it will be made from now on
                switches.choose_by_hand(switches.write_choice(bad))
                verdict, detail = _look_at_picture(task, disturb)
            elif name.startswith(COLLECTIVE):
                detail = collectives.check(name.removeprefix(COLLECTIVE), devices, disturb=disturb)
                verdict = "wrong" if detail else "right"
            else:
                verdict, detail = _compare(kernels[name], place, disturb)
        except Exception as error:  # noqa: BLE001 - whatever a compiler or a runtime raises is told
            verdict, detail = "refused", " ".join(str(error).split())[:400] or type(error).__name__
        off = kernels[name].off if name in kernels and verdict != "right" else ()
        bad.update(off)
        seconds = time.perf_counter() - started_s
        tell({"end": name, "verdict": verdict, "detail": detail, "seconds": seconds, "off": off})


def _compare(check: Any, place: Any, disturb: Callable[[Any], Any]) -> tuple[str, str]:
    from pipelines.doctor.kernels import measure_difference

    found, expected = check.compute(place)
    difference = measure_difference([disturb(one) for one in found], expected)
    return ("right" if difference <= check.most else "wrong"), f"differs by {difference:.2g}, may by {check.most:.2g}"


def _look_at_picture(task: dict[str, Any], disturb: Callable[[Any], Any]) -> tuple[str, str]:
    from pipelines.doctor.picture import LEAST_PSNR_DB, measure_psnr

    psnr_db = measure_psnr(Path(task["cache_dir"]), disturb=disturb)
    verdict = "right" if psnr_db >= LEAST_PSNR_DB else "wrong"
    return verdict, f"{psnr_db:.1f} dB, at least {LEAST_PSNR_DB:.0f}"


def _spoil(found: Any) -> Any:
    """Every value a tenth larger, and what is zero no more so."""
    import numpy as np

    return np.asarray(found).astype(np.float32) * 1.1 + 0.1


def _pretend(what: str) -> None:
    if what == "refused":
        raise RuntimeError("pretended: Mosaic failed to compile this kernel")
    if what == "hung":
        time.sleep(HANG_S)
    if what == "ended":
        os._exit(139)


if __name__ == "__main__":
    main()
