"""`bench load`: what is measured, that the loader holds no second copy, and what is refused before anything is made.

Also here: what the processes of `bench swap` refuse.
"""

import json
from pathlib import Path

import pytest

from pipelines.__main__ import main
from pipelines.commands.bench.load_runner import check_room
from pipelines.errors import LumeshError

# Of host memory beyond the arrays, at its peak. Measured at 0.24 to 0.55 GB: 7.8 % of the size in bf16, 16.3 % in fp32,
# the same within 4 MB from one load to the next. A second copy would be 100 % more in bf16, 50 % more in fp32.
MOST_BEYOND = 0.2
NOISE_MB = 20


@pytest.mark.usefixtures("fork_commands")
@pytest.mark.parametrize(("stored", "gigabytes", "kept"), [("bf16", 0.12, 0.12), ("fp32", 0.24, 0.12)])
def test_a_load_is_measured_beside_a_plain_read_holds_no_second_copy_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stored: str, gigabytes: float, kept: float
) -> None:
    flags = ["--stored", stored, "--gigabytes", str(gigabytes), "--rounds", "2", "--folder", str(tmp_path), "--json"]
    assert main(["bench", "load", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["mesh"], found["gb"]) == ("tp=8", pytest.approx(gigabytes, rel=0.15))
    assert found["ratio"] == pytest.approx(found["plain_s"] / found["load_s"])
    assert all(found[name] > 0 for name in ("plain_s", "copied_s", "load_s", "kept_s", "gb_per_s"))
    # Not less than the arrays: nothing of the round before is counted.
    assert 0 < found["beyond_mb"] < MOST_BEYOND * 1000 * found["gb"] + NOISE_MB
    assert found["kept_gb"] == pytest.approx(found["gb"] * kept / gigabytes, rel=0.01)
    assert not list(tmp_path.iterdir())


def test_there_must_be_room_for_the_layout_and_for_what_stays_free(tmp_path: Path) -> None:
    check_room(tmp_path, free=5.1e9, checkpoint=2e9, layout=2e9, spare=1.1e9)
    with pytest.raises(LumeshError, match="has 5.0 GB free; 5.1 GB are needed: 2.0 for the checkpoint, 2.0 for its"):
        check_room(tmp_path, free=5.0e9, checkpoint=2e9, layout=2e9, spare=1.1e9)


@pytest.mark.usefixtures("fork_commands")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("load --mesh dp=64", "lumesh: The mesh dp=64 needs 64 devices; there are "),
        ("swap --model demo-sdxl --model demo-flux2 --mesh dp=3x", "lumesh: 'dp=3x' is not a mesh."),
        ("swap --model nope --model demo-sdxl", "lumesh: model: There is no model 'nope'. Known models: "),
    ],
)
def test_wrong_values_end_with_2_and_one_line(
    command: str, words: str, data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUMESH_DATA_DIR", str(data_dir))
    assert main(["bench", *command.split()]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(words)
    assert len(printed.splitlines()) == 1
