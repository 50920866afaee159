"""The longest groups are given out first, and one process at a time has a browser's."""

from collections import OrderedDict
from typing import Any

import pytest

from tests import schedule

DURATIONS = {"long": 30.0, "middle": 20.0, "short": 2.0, "tests/browser/a.py": 9.0, "tests/browser/b.py": 5.0}


class Node:
    """A test process, as the scheduler sees it."""

    def send_runtest_some(self, indexes: list[int]) -> None: ...


class Processes:
    """Two test processes that ask for work in turn; what each was given is noted."""

    def __init__(self, scheduler: schedule.LongestFirst) -> None:
        self.scheduler = scheduler
        self.nodes = [Node(), Node()]
        for node in self.nodes:
            scheduler.registered_collections[node] = [f"{group}::test" for group in scheduler.workqueue]

    def ask(self, number: int) -> str:
        """The next group of this process, which has ended all it had."""
        node: Any = self.nodes[number]
        for tests in self.scheduler.assigned_work.get(node, {}).values():
            tests.update(dict.fromkeys(tests, True))
        before = set(self.scheduler.workqueue)
        self.scheduler._assign_work_unit(node)
        return (before - set(self.scheduler.workqueue)).pop()


@pytest.fixture
def processes() -> Processes:
    scheduler = schedule.LongestFirst.__new__(schedule.LongestFirst)
    scheduler._durations = DURATIONS
    scheduler.workqueue = OrderedDict((group, {f"{group}::test": False}) for group in ["new", *reversed(DURATIONS)])
    scheduler.assigned_work, scheduler.registered_collections = {}, {}
    return Processes(scheduler)


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/studio/jobs/test_queue.py::test_a[b::c@d]", "tests/studio/jobs/test_queue.py"),
        ("tests/pipelines/families/wan/test_parity.py::test_a", "tests/pipelines/families/wan"),
        ("tests/pipelines/families/fake/test_fake.py::test_a", "tests/pipelines/families/fake/test_fake.py"),
        ("tests/pipelines/families/test_a_new_family.py::test_a", "tests/pipelines/families/test_a_new_family.py"),
        ("tests/studio/ui/test_generate.py::test_a", "shared studio"),
    ],
)
def test_what_shares_something_dear_is_one_unit_of_work(processes: Processes, nodeid: str, group: str) -> None:
    assert processes.scheduler._split_scope(nodeid) == group


def test_measured_groups_are_groups_that_there_are() -> None:
    files = [file.relative_to(schedule.ROOT).as_posix() for file in (schedule.ROOT / "tests").rglob("test_*.py")]
    groups = {schedule.find_group(f"{file}::test") for file in files}
    assert not schedule.read_durations().keys() - groups
    assert all((schedule.ROOT / file).is_file() for file in schedule.TOGETHER)


def test_one_process_has_the_browser_and_the_other_the_longest_of_the_rest(processes: Processes) -> None:
    assert [processes.ask(0), processes.ask(1)] == ["tests/browser/a.py", "long"]
    assert processes.ask(1) == "middle", "the browser's other tests wait for the process that has one"
    assert processes.ask(0) == "tests/browser/b.py"


def test_at_the_end_everybody_takes_what_there_is_and_the_shortest_last(processes: Processes) -> None:
    assert [processes.ask(0) for _ in range(5)] == [
        "tests/browser/a.py",
        "tests/browser/b.py",
        "long",
        "middle",
        "short",
    ]
    assert processes.ask(1) == "new", "which nobody measured"


def test_what_is_only_left_for_the_browser_is_taken_by_a_second_process(processes: Processes) -> None:
    for group in ("new", "long", "middle", "short"):
        del processes.scheduler.workqueue[group]
    assert [processes.ask(0), processes.ask(1)] == ["tests/browser/a.py", "tests/browser/b.py"]


def test_what_was_measured_is_most_of_what_is_there() -> None:
    durations = schedule.read_durations()
    files = {name: seconds for name, seconds in durations.items() if name.startswith("tests/")}
    there = sum(seconds for name, seconds in files.items() if (schedule.ROOT / name).exists())
    assert there > 0.7 * sum(files.values()), "measure anew: bash tests/run --measure tests/durations.json"
