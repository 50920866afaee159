"""Every test is in one tier, and the fastest stays fast: what it may not do ends a test by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

ROOT = tiers.ROOT
TEST = """
import subprocess
import sys

import pytest


def test_imports():
    import jax


def test_starts():
    subprocess.run([sys.executable, "-c", ""])


def test_thinks():
    assert 1 + 1 == 2


@pytest.mark.process
def test_may_start():
    subprocess.run([sys.executable, "-c", ""])
"""


CONFTEST = """
import pathlib

from tests import tiers

tiers.ROOT, tiers.TIER_OF = pathlib.Path(__file__).parent, {".": "unit"}


def pytest_configure(config):
    config.pluginmanager.register(tiers)
"""


def run_pytest(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_a_unit_test_that_imports_jax_or_starts_a_process_fails_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    printed = run_pytest("--rootdir", tmp_path, "-c", ROOT / "pyproject.toml", "--confcutdir", tmp_path, tmp_path)
    assert "2 failed, 2 passed" in printed
    assert "test_imports imports jax: mark it `model`" in printed
    assert f"test_starts starts {sys.executable}: mark it `process`" in printed


def test_reading_the_unit_tests_imports_nothing_slow() -> None:
    code = (
        "import sys, pytest\n"
        "code = pytest.main(['--collect-only', '-qq', '-m', 'unit', '-p', 'no:cacheprovider'])\n"
        f"print(int(code), sorted({tiers.HEAVY!r} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[-1] == "0 []", ran.stdout[-2000:]


@pytest.mark.parametrize("name", tiers.TIER_OF)
def test_every_place_of_the_table_is_there(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        ("tests/test_readme.py", "unit"),
        ("tests/browser/test_page.py", "browser"),
        ("tests/pipelines/families/sdxl/test_parity.py", "model"),
        ("tests/pipelines/families/fake/test_fake.py", "unit"),
        ("tests/studio/jobs/test_queue.py", "unit"),
    ],
)
def test_the_longest_path_that_fits_names_the_tier(name: str, tier: str) -> None:
    assert tiers.find_tier(ROOT / name) == tier
