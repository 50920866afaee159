"""Before a worker opens devices that nobody has checked with these versions, the doctor does (pipelines/doctor).

It takes at most a minute, and once: what it found is kept in the data directory. A kernel that is bad is not used, and
the page says so in a card until the first job, and on the System view from then on.
"""

import logging
from collections.abc import Callable

from pipelines.doctor import examination, machine
from pipelines.messages import Message, join, say
from pipelines.runtime.kernels import switches
from pipelines.runtime.kernels.switches import Checked
from studio.jobs.job import Card
from studio.settings import Settings

MOST_S = 60.0
LIMITS = examination.Limits(opening_s=45.0, check_s=40.0, picture_s=45.0, whole_s=MOST_S)
"""A check that only had no time left counts as not done; one that hangs for 40 s compiles on no host for so long."""

log = logging.getLogger(__name__)


def check_up(settings: Settings, tell: Callable[[Message], object]) -> Card | None:
    """Checks the devices if the settings want it, and tells of each check; returns a card if anything is bad."""
    switches.choose_by_hand(settings.kernels)
    if settings.fake or settings.doctor == "off":
        return None
    known = examination.find_known(settings.cache_dir)
    if known is not None:
        return None if settings.kernels is not None else describe(known)
    if settings.doctor == "auto" and not machine.identify_hardware():
        return None  # a CPU, whose kernels are XLA's own
    tell(say("checking the devices, once for these versions"))
    report = examination.examine(
        settings.data_dir,
        cache_dir=settings.cache_dir,
        allow_cpu=settings.allow_cpu,
        limits=LIMITS,
        on_check=lambda name: tell(say("checking {what}, once for these versions", what=name)),
    )
    tell(say("starting"))  # which is also a sign of life, before the devices are opened again
    log.info("%s checks in %.0f s", len(report.checks), report.seconds)
    for problem in report.problems:
        log.warning("%s", problem)
    found = examination.find_known(settings.cache_dir)
    return None if found is None or settings.kernels is not None else describe(found)


def describe(checked: Checked) -> Card | None:
    """Returns a card about what is bad; None where nothing is."""
    bad = {name: found for name, found in checked.checks.items() if found.is_bad}
    if not bad:
        return None
    details = [say("{check}: {verdict}.", check=name, verdict=found.describe()) for name, found in bad.items()]
    if checked.off:
        details.append(
            say(
                "In their place: {instead}. That is slower, and the pictures are the same.",
                instead=join((switches.INSTEAD[name] for name in checked.off), ";"),
            )
        )
    return Card(
        title=say("These devices did not pass every check"),
        detail=join(details),
        advice=say("Run `python -m pipelines doctor` while the studio is stopped, and send us what it says."),
    )
