"""tcmalloc is loaded where it is installed and nobody has chosen otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.runtime.devices import allocator
from tests.places import ROOT


def test_the_one_without_profilers_is_chosen_wherever_it_lies(tmp_path: Path) -> None:
    places = [str(tmp_path / "multiarch"), str(tmp_path / "lib64")]
    assert allocator.choose({}, places) == {}
    for name, place in (("libtcmalloc.so.4", places[0]), ("libtcmalloc_minimal.so.4", places[1])):
        Path(place).mkdir()
        (Path(place) / name).touch()
        assert allocator.choose({}, places)["LD_PRELOAD"] == f"{place}/{name}"


def test_whoever_names_a_library_or_none_has_chosen(tmp_path: Path) -> None:
    (tmp_path / "libtcmalloc.so.4").touch()
    assert allocator.choose({"LD_PRELOAD": ""}, [str(tmp_path)]) == {}
    assert allocator.choose({"LD_PRELOAD": "/usr/lib/libjemalloc.so"}, [str(tmp_path)]) == {}


@pytest.mark.process
@pytest.mark.skipif(not allocator.choose({}), reason="tcmalloc is not installed")
def test_a_command_starts_itself_again_with_it(tmp_path: Path) -> None:
    """And the dynamic linker, which writes down what it loads, sees the same process twice."""
    environment = {name: value for name, value in os.environ.items() if name != allocator.PRELOAD}
    watched = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "loaded")}
    command = [sys.executable, "-X", "utf8", "-m", "pipelines", "--help"]
    ran = subprocess.run(command, cwd=ROOT, env=environment | watched, capture_output=True, text=True, check=True)
    assert "Usage: python -m pipelines" in ran.stdout
    (written,) = tmp_path.iterdir()
    assert "libtcmalloc" in written.read_text("utf-8")
