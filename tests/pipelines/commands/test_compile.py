"""`compile` and `generate --pack`: a machine with the pack compiles nothing and makes the very same picture."""

import contextlib
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.__main__ import main
from pipelines.errors import Cancelled
from pipelines.generate import generate
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.registry import load
from pipelines.runtime.programs.aot_packs import read_manifest
from pipelines.runtime.programs.compiled import counter
from pipelines.stages import Progress, ignore_progress
from tests.forked_python import find_forked_python
from tests.places import ROOT

PROGRAMS = ["encode", "denoise 64x64 1 True", "preview 64x64 1", "condition 64x64", "decode 64x64 1"]
WISH = ["--prompt", "a red boat", "--seed", "7", "--num_inference_steps", "3", "--guidance_scale", "4"]


def compile_tiny(short_dir: Path, folder: Path, *flags: str, topology: str = "cpu-8", mesh: str = "dp=1") -> Any:
    """Packs the tiny model, for one CPU device of this machine unless told, and returns the command's object."""
    command = ["compile", "--model", "tiny", "--topology", topology, "--mesh", mesh, "--json", *flags]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*command, "--output", str(folder / "tiny.pack"), "--data-dir", str(short_dir)]) == 0
    return json.loads(printed.getvalue())


@pytest.fixture(name="catalog", scope="module")
def read_catalog(short_dir: Path) -> Catalog:
    return load_catalog(short_dir / "models")


@pytest.fixture(name="family", scope="module")
def load_without_pack(catalog: Catalog, cache_dir: Path) -> Any:
    """The tiny model on one device."""
    return load(catalog.get("tiny"), mesh="dp=1", cache_dir=cache_dir, on_progress=ignore_progress)


@pytest.fixture(name="recipe", scope="module")
def read_wish(catalog: Catalog) -> Recipe:
    """What `WISH` asks for."""
    wish = {"model": "tiny", "prompt": "a red boat", "seed": 7, "steps": 3, "guidance_scale": 4.0}
    return resolve(read_recipe(wish), catalog)


@pytest.fixture(name="made", scope="module")
def make_pack(short_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compile_tiny(short_dir, tmp_path_factory.mktemp("packs"), "--shape", "all", "--shape", "64x64")


def run_apart(*arguments: str | Path) -> Any:
    """A command in a process of its own, with one device, and the object it prints."""
    done = subprocess.run(
        [find_forked_python(), "-m", "pipelines", *arguments, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={
            "PATH": "",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
            "OMP_NUM_THREADS": "1",
        },
    )
    return json.loads(done.stdout)


def test_a_machine_with_the_pack_compiles_nothing_and_makes_the_same_picture(
    short_dir: Path, family: Any, recipe: Recipe, tmp_path: Path
) -> None:
    """Two processes that share nothing but the checkpoint and the pack; what they make, a family without it makes."""
    (tmp_path / "models").symlink_to(short_dir / "models")
    where = ["--model", "tiny", "--data-dir", tmp_path]
    made = run_apart("compile", "--topology", "cpu-1", *where)
    assert made["output"] == str(tmp_path / "packs" / "tiny-cpu-1.pack")
    assert made["programs"] == PROGRAMS
    assert run_apart("generate", *WISH, "--output", tmp_path / "made.png", *where)["compiles"] == 0
    made_here = generate(family, recipe)
    difference = np.asarray(Image.open(tmp_path / "made.png")).astype(int) - made_here.pixels[0]
    assert np.abs(difference).max() <= 1


def test_a_family_with_the_pack_is_on_disk_and_builds_nothing(
    made: Any, catalog: Catalog, recipe: Recipe, family: Any, tmp_path: Path
) -> None:
    assert made["target"]["mesh"] == "1 device"
    expected = generate(family, recipe).pixels
    empty = tmp_path / "cache"
    packed = load(
        catalog.get("tiny"),
        mesh="dp=1",
        cache_dir=empty,
        on_progress=ignore_progress,
        packs=[Path(made["output"])],
    )
    assert packed.shape_state(recipe.parsed_shape) == "disk"
    told, built = [], counter.built
    outcome = generate(packed, recipe, on_progress=told.append)
    assert counter.built == built
    assert outcome.compiles == 0
    np.testing.assert_array_equal(outcome.pixels, expected)
    details = [progress.detail for progress in told if progress.phase == "compiling"]
    assert details[0] == "64x64"
    assert packed.shape_state(recipe.parsed_shape) == "warm"
    assert not (empty / "lumesh-programs.json").exists()  # the cache does not have them


def find_detail(family: Any, words: str, *, batch_size: int = 1) -> str:
    """Returns the first sentence about compiling that has `words` in it, less whether the cache has the programs."""
    found = []

    def watch(progress: Progress) -> None:
        if words in progress.detail:
            found.append(progress.detail)
            raise Cancelled

    with pytest.raises(Cancelled):
        family.warm(family.model.default_shape, batch_size=batch_size, uses_cfg=True, on_progress=watch)
    return found[0].removesuffix("; from the cache")


def test_why_a_pack_is_not_used_is_said_to_whoever_watches(made: Any, catalog: Catalog, cache_dir: Path) -> None:
    options = {"cache_dir": cache_dir, "on_progress": ignore_progress, "packs": [Path(made["output"])]}
    split = load(catalog.get("tiny"), mesh="dp=2", **options)
    assert find_detail(split, "pack") == "64x64 tiny.pack is not used: made for 1 device; here is dp=2"
    single = load(catalog.get("tiny"), mesh="dp=1", **options)
    detail = find_detail(single, "holds", batch_size=2)
    assert "tiny.pack holds 64x64, not denoise 64x64 2 True" in detail.split("; ")[-1]


@pytest.mark.tpu_aot
def test_a_pack_for_a_tpu_is_made_without_one_and_refused_without_one(
    short_dir: Path, tmp_path: Path, catalog: Catalog, cache_dir: Path, v6e_8: list[Any]
) -> None:
    made = compile_tiny(short_dir, tmp_path, topology="v6e-8", mesh="dp=2,sp=4")
    assert made["programs"] == PROGRAMS
    target = read_manifest(Path(made["output"])).target
    assert (target.devices, target.mesh) == ("8 x TPU v6 lite", "dp=2,sp=4")
    assert target.libtpu.startswith("0.0.42")
    assert target.layout.startswith("0:0:[0, 0, 0] 1:0:[1, 0, 0]")
    options = {"cache_dir": cache_dir, "on_progress": ignore_progress, "packs": [Path(made["output"])]}
    here = load(catalog.get("tiny"), mesh="dp=2,sp=4", **options)
    assert find_detail(here, "pack") == "64x64 tiny.pack is not used: made for 8 x TPU v6 lite; here is CPU"


def test_shapes_are_chosen_as_for_prewarming(made: Any) -> None:
    assert made["shapes"] == ["64x64"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--topology v9-8", "there is no 'v9-8'; allowed: v4-8"),
        ("--topology cpu-1 --shape 99x99", "99x99 is not a shape of tiny; allowed: 64x64, all"),
        ("--topology cpu-1 --shape 64x64+1", "64x64 with input pictures is not a shape of tiny"),
        ("--topology cpu-1 --batch_size 64", "tiny makes at most 8 at once"),
        ("--topology cpu-1 --mesh dp=16", "needs 16 devices"),
        ("--topology cpu-1 --output {data_dir}", "is a folder; name a file in it"),
        ("--topology cpu-1 --output /proc/packs/a.pack", "output: /proc/packs cannot be a folder"),
    ],
)
def test_wrong_values_end_with_2_and_one_line(
    flags: str, words: str, short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [flag.replace("{data_dir}", str(short_dir)) for flag in flags.split()]
    assert main(["compile", "--model", "tiny", *arguments, "--data-dir", str(short_dir)]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.splitlines()) == 1


def test_everything_that_is_wrong_is_told_at_once(
    short_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--topology", "v9", "--batch-size", "99", "--shape", "1x1", "--output", str(tmp_path / "pack")]
    assert main(["compile", "--model", "tiny", *words, "--data-dir", str(short_dir)]) == 2
    said = capsys.readouterr().err
    for text in ("topology: there is no 'v9'", "batch_size: ", "shape: 1x1 is not", "should end in .pack"):
        assert text in said


def test_a_pack_that_is_not_there_is_refused_before_any_work(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["generate", "--model", "tiny", "--pack", "no.pack", *WISH, "--data-dir", str(short_dir)]
    assert main(command) == 2
    assert "no.pack" in capsys.readouterr().err
