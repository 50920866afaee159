"""Which test process runs what, and when: groups of tests that belong together, the longest first.

A group is what shares something dear: a file's fixtures, a family's compiled programs, a running studio. How long each
takes is measured (`--measure`) and kept in durations.json; groups that are not there take `UNKNOWN_S`. All this
is for `--dist loadgroup`, which alone is used here.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler import LoadGroupScheduling

from tests.places import ROOT

DURATIONS_FILE = ROOT / "tests" / "durations.json"
UNKNOWN_S = 1.0  # for a group of tests that nobody measured
FAMILIES = ROOT / "tests" / "pipelines" / "families"
TOGETHER = {  # files whose tests compile, or start, the same
    "tests/pipelines/test_demo_bf16.py": "demo models",
    "tests/pipelines/test_demo_model.py": "demo models",
    "tests/studio/api/adapters/test_mcp.py": "shared studio",
    "tests/studio/ui/test_generate.py": "shared studio",
    "tests/test_access.py": "shared studio",
    "tests/test_readme_examples.py": "shared studio",
}

_seconds: Counter[str] = Counter()
_processor_seconds: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--measure",
        metavar="FILE",
        help="write each group's seconds into FILE (of a whole run: tests/durations.json); print those of a processor",
    )


def find_group(nodeid: str) -> str:
    """A family's tests are one group, so are a running studio's users; of others, a file's."""
    place = Path(nodeid.partition("::")[0])
    folder = ROOT / place.parent
    if folder.parent == FAMILIES and folder.name != "fake":
        return place.parent.as_posix()
    return TOGETHER.get(place.as_posix(), place.as_posix())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling:
    return LongestFirst(config, log)


class LongestFirst(LoadGroupScheduling):
    """Gives out the longest group there is, so that all processes end at about the same time.

    One process at a time has a browser's tests, which wait more than they compute: the others leave the cores to it.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._durations = read_durations()

    def _split_scope(self, nodeid: str) -> str:
        """Groups by where a test is: markers of groups would have to be there before xdist itself looks for them."""
        return find_group(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        others = (work for other, work in self.assigned_work.items() if other is not node)
        is_browser_busy = any(
            is_of_browser(group) and not all(tests.values()) for work in others for group, tests in work.items()
        )
        groups = [group for group in self.workqueue if is_of_browser(group) != is_browser_busy]
        longest = max(groups or self.workqueue, key=self._find_seconds)
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)

    def _find_seconds(self, group: str) -> float:
        return self._durations.get(group, UNKNOWN_S)


def read_durations() -> dict[str, float]:
    """Seconds of each group that was measured."""
    return json.loads(DURATIONS_FILE.read_text("utf-8"))


def is_of_browser(group: str) -> bool:
    return group.startswith("tests/browser/")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.config.option.measure is None:
        return (yield)
    started, processor_started = time.perf_counter(), read_processor_seconds()
    try:
        return (yield)
    finally:
        group = find_group(item.nodeid)
        _seconds[group] += time.perf_counter() - started
        _processor_seconds[group] += read_processor_seconds() - processor_started


def read_processor_seconds() -> float:
    """Returns the seconds of this process, of those it started, and of those that ended; not of forked commands."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.Error:
            continue  # it ended meanwhile, and counts as such
    return total


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Every test process hands its figures to the one that started them all."""
    if session.config.option.measure is None or hasattr(session.config, "workeroutput"):
        workeroutput = getattr(session.config, "workeroutput", {})
        workeroutput["seconds"], workeroutput["processor_seconds"] = dict(_seconds), dict(_processor_seconds)
        return
    lines = ",\n".join(f"  {json.dumps(group)}: {seconds:.1f}" for group, seconds in _seconds.most_common())
    Path(session.config.option.measure).write_text(f"{{\n{lines}\n}}\n", "utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _processor_seconds:
        terminalreporter.section(f"{_processor_seconds.total():.0f} s of a processor")
        for group, seconds in _processor_seconds.most_common():
            terminalreporter.write_line(f"{seconds:7.1f}  of {_seconds[group]:7.1f} s  {group}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A test process has ended; its figures join those of the others."""
    output = getattr(node, "workeroutput", {})
    _seconds.update(output.get("seconds", {}))
    _processor_seconds.update(output.get("processor_seconds", {}))
