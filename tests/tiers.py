"""Which tier a test is in: what it takes to run it, from `unit`, which anybody runs all the time, to `browser`.

A test's tier is its folder's, unless it carries the marker of a slower one. `pytest -m unit` does not even read the
files of other tiers, so nothing slow is imported; what a unit test may not do fails it by name.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT

TIERS = ("unit", "model", "process", "tpu_aot", "browser")  # fastest first

# The longest path that fits a test's file names its tier.
TIER_OF = {
    "tests": "unit",
    "tests/browser": "browser",
    "tests/load": "process",
    "tests/test_access.py": "process",
    "tests/test_app.py": "process",
    "tests/test_forked_python.py": "process",
    "tests/test_readme_examples.py": "process",
    "tests/test_studio_processes.py": "process",
    "tests/test_tiers.py": "process",
    "tests/test_training_app.py": "process",
    "tests/pipelines/commands": "model",
    "tests/pipelines/commands/test_old_flags.py": "unit",
    "tests/pipelines/commands/test_old_training_flags.py": "unit",
    "tests/pipelines/commands/test_pushing.py": "unit",
    "tests/pipelines/commands/test_sizes.py": "unit",
    "tests/pipelines/demos": "model",
    "tests/pipelines/demos/motions": "unit",
    "tests/pipelines/demos/motions/test_judge.py": "model",
    "tests/pipelines/demos/postcards": "unit",
    "tests/pipelines/demos/test_scores.py": "unit",
    "tests/pipelines/doctor": "process",
    "tests/pipelines/families": "model",
    "tests/pipelines/families/fake": "unit",
    "tests/pipelines/families/test_embedding_cache.py": "unit",
    "tests/pipelines/plan": "model",
    "tests/pipelines/plan/test_kept_trainings.py": "unit",
    "tests/pipelines/plan/test_training_report.py": "unit",
    "tests/pipelines/runtime": "model",
    "tests/pipelines/runtime/devices/test_platform.py": "process",
    "tests/pipelines/runtime/weights/test_hub.py": "process",
    "tests/pipelines/test_demo_bf16.py": "model",
    "tests/pipelines/test_demo_model.py": "model",
    "tests/pipelines/test_hosts.py": "process",
    "tests/pipelines/test_precision.py": "model",
    "tests/pipelines/training": "model",
    "tests/pipelines/training/data": "unit",
    "tests/pipelines/training/data/test_rows.py": "model",
    "tests/pipelines/training/test_settings.py": "unit",
    "tests/pipelines/training/test_sizes.py": "unit",
    "tests/studio/api/adapters/test_openai.py": "process",
    "tests/studio/api/adapters/test_mcp.py": "process",
    "tests/studio/api/routes/test_system.py": "process",
    "tests/studio/ui/test_generate.py": "process",
    "tests/studio/worker/test_crew.py": "process",
    "tests/studio/worker/test_supervisor.py": "process",
}

# Of those who ask for these fixtures.
TIER_OF_USERS = dict.fromkeys(("start_studio", "start_command", "shared_studio"), "process")

HEAVY = {"jax", "jaxlib", "torch", "torchax"}
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"}
QUICK_PROGRAMS = ("ffmpeg",)  # reads and writes the videos of unit tests in hundredths of a second

_watched: list[str] = []  # the unit test that runs now, if one does


def find_tier(path: Path) -> str:
    """The tier of a file's or folder's tests, by where it is."""
    place = path.relative_to(ROOT)
    return next(TIER_OF[name] for name in map(Path.as_posix, (place, *place.parents)) if name in TIER_OF)


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_refuse_what_is_slow)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only a unit folder's file has unit tests: `-m unit` leaves the others alone."""
    is_test_file = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test_file and config.option.markexpr == "unit" and find_tier(collection_path) != "unit" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test with its one tier, before `-m` chooses among them."""
    for item in items:
        tier = find_tier(item.path)
        own = {mark.name for mark in item.iter_markers() if mark.name in TIERS}
        own |= {TIER_OF_USERS[name] for name in getattr(item, "fixturenames", ()) if name in TIER_OF_USERS}
        if len(own) > 1 or any(TIERS.index(name) < TIERS.index(tier) for name in own):
            raise pytest.UsageError(f"{item.nodeid} is in {tier}, by its folder, and in {', '.join(sorted(own))}")
        item.add_marker(own.pop() if own else tier)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker("unit") is not None:
        _watched.append(item.nodeid)
    try:
        return (yield)
    finally:
        _watched.clear()


class TooSlowError(AssertionError):
    """A unit test did what belongs in a slower tier."""


def _refuse_what_is_slow(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event == "import" and arguments[0].partition(".")[0] in HEAVY:
        raise TooSlowError(f"{_watched[0]} imports {arguments[0]}: mark it `model`, or import less")
    if event in STARTS and not Path(os.fsdecode(arguments[0] or "") if arguments else "").name.startswith(
        QUICK_PROGRAMS
    ):
        raise TooSlowError(f"{_watched[0]} starts {arguments[0]}: mark it `process`")
