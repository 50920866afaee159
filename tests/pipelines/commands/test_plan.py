"""`python -m pipelines plan`: stable keys, answers from the cache, and plain refusals."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from pipelines.__main__ import main
from pipelines.models.catalog import Model
from pipelines.plan import planner, topologies
from pipelines.plan.compiler import CompilerError

STAGES = ["encode", "condition", "denoise", "preview", "decode"]


@pytest.fixture
def uncached(cache_dir: Path) -> Iterator[None]:
    """`plan` itself runs without JAX's cache, which cannot read programs for chips that are not here."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    yield
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture
def plan(
    short_dir: Path,
    uncached: None,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], tuple[int, str, str]]:
    """Runs `plan` on a data directory with one model: exit code, standard output, standard error."""

    def run(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["plan", *shlex.split(line), "--data-dir", str(short_dir)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def read_json(found: tuple[int, str, str]) -> Any:
    code, out, err = found
    assert (code, err, len(out.splitlines())) == (0, "", 1)
    return json.loads(out)


def test_a_plan_for_this_cpu_has_the_contracts_keys_and_writes_hlo(plan: Callable[[str], Any], tmp_path: Path) -> None:
    report = read_json(plan(f"--model tiny --topology cpu-8 --json --dump-hlo {tmp_path}"))
    assert report.keys() >= {"model", "shape", "topology", "mesh", "mode", "stages", "estimated_total_s", "fits"}
    assert [stage["stage"] for stage in report["stages"]] == STAGES
    for stage in report["stages"]:
        assert stage.keys() >= {"fits", "hbm_bytes", "compile_s", "estimated_ms", "collectives", "mesh"}
        assert stage["hbm_bytes"].keys() == {"weights", "temp", "code", "total"}
        assert stage["fits"] is True
        assert stage["estimated_ms"] is None  # the CPU compiler estimates nothing
    assert {file.name for file in tmp_path.iterdir()} == {f"tiny_{stage}.hlo" for stage in STAGES}
    assert "ENTRY" in (tmp_path / "tiny_denoise.hlo").read_text()
    again = read_json(plan(f"--model tiny --topology cpu-8 --json --output {tmp_path}/plans.md"))
    assert again == report  # compile seconds and all: the answers were kept
    page = (tmp_path / "plans.md").read_text()
    assert "`python -m pipelines plan --model tiny --topology cpu-8`" in page
    assert "## cpu-8: 8 CPU devices" in page
    assert "| tiny | 64x64 | dp=2,sp=4 | all |" in page


def test_progress_for_scripts_is_one_object_a_line(plan: Callable[[str], Any]) -> None:
    code, out, err = plan("--model tiny --topology cpu-8 --json --progress-json")
    assert (code, json.loads(out)["model"]) == (0, "tiny")
    told = [json.loads(line) for line in err.splitlines()]
    assert told[0] == {"phase": "tracing", "done": 0, "total": 0}


@pytest.mark.tpu_aot
def test_a_plan_for_v6e_8_is_estimated_by_the_tpu_compiler(
    plan: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[planner.Plan] = []
    make_plan = planner.make_plan
    monkeypatch.setattr(
        planner, "make_plan", lambda *args, **options: made.append(make_plan(*args, **options)) or made[-1]
    )
    report = read_json(plan("--model tiny --topology v6e-8 --json"))
    assert (report["mesh"], report["chips"], report["source"]) == ("dp=2,sp=4", 8, "Estimated by the TPU compiler")
    assert report["placement"]["kind"] == "all"
    denoise = next(stage for stage in report["stages"] if stage["stage"] == "denoise")
    assert denoise["collectives"]["collective-permute"]["count"] > 0  # the halos of convolutions over split rows
    assert denoise["hbm_bytes"]["code"] > 0
    total_ms = sum(denoise["estimated_parts_ms"][part] for part in ("compute", "attention", "exposed_collectives"))
    assert 0 < denoise["estimated_ms"] == pytest.approx(total_ms, abs=0.001)
    assert report["estimated_total_s"] > denoise["runs"] * denoise["estimated_ms"] / 1000
    monkeypatch.setattr(planner, "make_plan", lambda *_args, **_options: made[-1])
    code, table, _ = plan("--model tiny --topology v6e-8")
    assert code == 0
    assert "Estimated by the TPU compiler, nothing was run" in table
    assert "\N{HORIZONTAL ELLIPSIS}" not in table  # every cell has its place in 80 columns
    rows = [line for line in table.splitlines() if line.startswith(("stage ", "denoise x"))]
    assert len(rows) == 2
    assert all(len(row) <= 80 for row in rows)


def test_when_the_compiler_fails_at_some_models_the_others_are_planned(
    plan: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_one(model: Model, *arguments: Any, **options: Any) -> planner.Plan:
        if model.id != "tiny":
            raise CompilerError("The compiler failed at denoise: INTERNAL.", advice="Try another.")
        return make_plan(model, *arguments, **options)

    make_plan = planner.make_plan
    monkeypatch.setattr(planner, "make_plan", make_one)
    code, out, err = plan(f"--all --topology cpu-8 --json --output {tmp_path}/plans.md")
    assert [made["model"] for made in json.loads(out)] == ["tiny"]
    assert "| tiny | 64x64 |" in (tmp_path / "plans.md").read_text()
    assert (code, len(err.splitlines())) == (1, 1)
    assert "sdxl-base 1024x1024 on cpu-8: The compiler failed at denoise: INTERNAL." in err
    assert err.endswith(" Try another.\n")


def test_without_the_tpu_compiler_no_kernel_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topologies, "find_spec", lambda _name: None)
    assert main(["plan", "--search", "attention"]) == 1
    assert "The TPU compiler is not installed here." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--model nope", "Known models: demo-flux2, demo-sdxl, demo-wan, sd15"),
        ("--model sdxl-base --topology v9", "there is no 'v9'; allowed: v4-8, v5e-1, v5e-4, v5e-8, v6e-1"),
        ("--model sdxl-base --shape 100x100", "100x100 is not a shape of sdxl-base; allowed: 1024x1024, 1152x896"),
        ("--all --shape 64x64", "--all takes every model in its default shape, --all-shapes every shape"),
        ("--matrix --topology v6e-8", "matrix: chooses models, shapes, topologies and modes itself"),
        ("--model sdxl-base --step-cache mild", "step_cache: sdxl-base has no step cache"),
        ("--model wan2.1-14b --step-cache taylor,0", "step_cache: 'taylor,0' is not known; write taylor"),
        ("--model wan2.1-14b --step-cache much", "step_cache: 'much' is not known; allowed: off, mild, strong"),
        ("--model sdxl-base --mode fast", "'fast' is not known; allowed: latency, throughput"),
        ("--model sdxl-base --mesh dp=3x", "'dp=3x' is not a mesh"),
        ("--model sdxl-base --dump-hlo /proc/texts", "dump_hlo: /proc/texts cannot be a folder"),
        ("--model sdxl-base --output /tmp", "output: /tmp is a folder; name a file in it"),
        ("--model sdxl-base --answers README.md", "README.md holds something else than answers"),
        ("--search attention --model sdxl-base", "search: goes with --topology and --json alone"),
        ("--search attention --topology cpu-1", "cpu-1 has no matrix units; allowed: v4-8"),
        ("--model sdxl-base --topology v6e-4 --mesh dp=8", "needs 8 devices; there are 4"),
    ],
)
def test_wrong_values_end_with_2_and_one_line(plan: Callable[[str], Any], line: str, words: str) -> None:
    code, out, err = plan(line)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err


def test_everything_that_is_wrong_is_told_at_once(plan: Callable[[str], Any]) -> None:
    code, _, err = plan("--model tiny --topology v9 --mode fast --shape 1x1")
    assert code == 2
    for words in ("topology: there is no 'v9'", "mode: 'fast' is not known", "shape: 1x1 is not a shape of tiny"):
        assert words in err


def test_weights_in_int8_take_less_than_in_full_and_are_named_in_every_form(
    plan: Callable[[str], Any], tmp_path: Path
) -> None:
    file = tmp_path / "answers.jsonl"
    line = f"--model tiny --topology cpu-1 --answers {file} --output {tmp_path}/plans.md"
    full, rounded = (read_json(plan(f"{line} --json --weights {weights}")) for weights in ("full", "int8"))
    assert (full["weights"], rounded["weights"]) == ("full", "int8")
    sizes = [{one["stage"]: one["hbm_bytes"]["weights"] for one in made["stages"]} for made in (full, rounded)]
    assert sizes[1]["denoise"] < sizes[0]["denoise"]
    assert sizes[1]["decode"] == sizes[0]["decode"]
    assert len(file.read_text().splitlines()) == 2  # one does not take the other's place
    page = (tmp_path / "plans.md").read_text()
    assert "| tiny | 64x64 |" in page
    assert "| tiny int8 | 64x64 |" in page
    code, table, _ = plan(f"{line} --weights int8")
    assert (code, "weights in int8" in table) == (0, True)


def test_an_unknown_form_of_weights_is_refused(plan: Callable[[str], Any]) -> None:
    code, _, err = plan("--model tiny --weights int4")
    assert (code, "'int4' is not known; allowed: full, int8" in err) == (2, True)
