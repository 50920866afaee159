"""What a model's programs are made of, and that it is noticed when that changes."""

import ast
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

import pipelines
from pipelines.errors import ModelError
from pipelines.families import FAMILIES
from pipelines.models.catalog import Model, load_catalog
from pipelines.models.fingerprints import (
    CONFIGS_DIR,
    PLAN_CODE,
    PROGRAM_CODE,
    find_configs,
    fingerprint_code,
    fingerprint_configs,
    fingerprint_files,
    fingerprint_plans,
    fingerprint_programs,
    list_components,
)
from pipelines.models.model import Example

ROOT = Path(pipelines.__file__).parent


@pytest.fixture
def own(tmp_path: Path) -> Model:
    """A folder of somebody's own, with a config and weights."""
    (tmp_path / "unet").mkdir()
    (tmp_path / "model_index.json").write_text("{}")
    (tmp_path / "unet" / "config.json").write_text(json.dumps({"layers": 2}))
    (tmp_path / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"weights")
    return replace(load_catalog().get("demo-sdxl"), id="mine", path=tmp_path)


def test_configs_are_the_models_own_or_shipped(own: Model) -> None:
    assert find_configs(own) == own.path
    assert find_configs(load_catalog().get("sdxl-base")) == CONFIGS_DIR / "sdxl-base"


def test_components_are_the_folders_that_the_family_reads(own: Model) -> None:
    assert list_components(own) == ["unet"]
    assert {"text_encoder", "text_encoder_2", "unet", "vae"} <= set(list_components(load_catalog().get("sdxl-base")))
    assert list_components(replace(load_catalog().get("sdxl-base"), id="unknown")) == ["*"]


def test_a_model_without_configs_says_where_to_put_them() -> None:
    model = replace(load_catalog().get("sdxl-base"), id="unknown")
    with pytest.raises(ModelError, match="There are no configs of unknown here"):
        find_configs(model)
    assert fingerprint_configs(model) == ""


def test_other_configs_under_the_same_name_are_noticed(own: Model) -> None:
    before = fingerprint_configs(own)
    assert own.path is not None
    (own.path / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"others")
    assert fingerprint_configs(own) == before != ""
    (own.path / "unet" / "config.json").write_text(json.dumps({"layers": 3}))
    assert fingerprint_configs(own) != before


@pytest.mark.parametrize("fingerprint", [fingerprint_programs, fingerprint_plans])
def test_other_configs_and_other_options_are_other_programs(own: Model, fingerprint: Callable[[Model], str]) -> None:
    before = fingerprint(own)
    assert fingerprint(replace(own, text_length=own.text_length + 1)) != before
    assert fingerprint(replace(own, revision="another")) != before
    assert own.path is not None
    (own.path / "unet" / "config.json").write_text(json.dumps({"layers": 3}))
    assert fingerprint(own) != before


def test_words_of_the_catalogue_and_where_files_lie_make_no_other_programs(own: Model, tmp_path: Path) -> None:
    assert own.path is not None
    moved = own.path.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    (own.path / "unet").mkdir(parents=True)
    for name in ("model_index.json", "unet/config.json"):
        (own.path / name).write_bytes((moved / name).read_bytes())
    expected = fingerprint_programs(own)
    assert fingerprint_programs(replace(own, path=moved, title="Another", description="Said otherwise")) == expected
    assert fingerprint_programs(replace(own, loras_dir=tmp_path, examples=(Example(prompt="A cat"),))) == expected


def test_every_model_of_the_catalogue_has_its_own_fingerprint() -> None:
    models = load_catalog().models
    assert len({*map(fingerprint_programs, models), *map(fingerprint_plans, models)}) == 2 * len(models)


@pytest.mark.process
def test_the_code_has_a_fingerprint_without_jax() -> None:
    code = (
        "import sys; from pipelines.models.catalog import load_catalog;"
        "from pipelines.models.fingerprints import fingerprint_plans as f;"
        "print(f(load_catalog().default), 'jax' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said == [fingerprint_plans(load_catalog().default), "False"]


FILES = {
    "runtime/kernels/flash.py": "TILE = 512\n",
    "families/base.py": "class LoadedModel:\n    pass\n",
    "families/sdxl/denoise.py": 'def step(latents):\n    """Advances by one step."""\n    return latents * 2\n',
    "families/wan/denoise.py": "def step(latents):\n    return latents\n",
    "plan/planner.py": "LIMIT = 2\n",
    "models/model.py": "VIDEO_STRIDE = 4\n",
    "models/catalog.py": "PRESETS = 1\n",
    "recipes/recipe.py": "MAX_STEPS = 100\n",
    "demos/judge.py": "THRESHOLD = 1\n",
    "training/trainer.py": "RATE = 1\n",
    "commands/generate.py": "PAGE = 1\n",
}


@pytest.fixture
def write_code(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small copy of the package's tree, with some files otherwise; None leaves one out."""
    count = itertools.count()

    def write(changes: Mapping[str, str | None] = MappingProxyType({})) -> Path:
        root = tmp_path / f"code{next(count)}"
        for name, text in (FILES | dict(changes)).items():
            if text is not None:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
        return root

    return write


@pytest.fixture
def fingerprint(write_code: Callable[..., Path]) -> Callable[..., str]:
    """The fingerprint of such a tree for the family sdxl."""

    def compute(changes: Mapping[str, str | None], patterns: Sequence[str] = PROGRAM_CODE) -> str:
        return fingerprint_code([pattern.format(family="sdxl") for pattern in patterns], root=write_code(changes))

    return compute


BOTH, PLANS, NONE = (PROGRAM_CODE, PLAN_CODE), (PLAN_CODE,), ()


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("runtime/kernels/flash.py", BOTH),
        ("families/base.py", BOTH),
        ("families/sdxl/denoise.py", BOTH),
        ("models/model.py", BOTH),
        ("models/catalog.py", NONE),
        ("plan/planner.py", PLANS),
        ("families/wan/denoise.py", NONE),
        ("recipes/recipe.py", NONE),
        ("demos/judge.py", NONE),
        ("training/trainer.py", NONE),
        ("commands/generate.py", NONE),
    ],
)
def test_only_code_that_makes_programs_or_plans_is_noticed(
    fingerprint: Callable[..., str], name: str, of: tuple[tuple[str, ...], ...]
) -> None:
    for patterns in (PROGRAM_CODE, PLAN_CODE):
        changed = fingerprint({name: FILES[name] + "CHANGED = 1\n"}, patterns)
        assert (changed != fingerprint({}, patterns)) == (patterns in of)


@pytest.mark.parametrize(
    "text",
    [
        'def step(latents):\n    """Moves on by one."""\n    return latents * 2\n',
        "# why\n\ndef step(latents):\n    return latents * 2  # twice\n",
        '"""Denoises."""\n\ndef step(\n    latents,\n):\n    return latents * 2\n',
    ],
    ids=["docstring", "comments", "layout"],
)
def test_documentation_changes_nothing(fingerprint: Callable[..., str], text: str) -> None:
    assert fingerprint({"families/sdxl/denoise.py": text}) == fingerprint({})


@pytest.mark.parametrize(
    "text",
    [
        "def step(latents):\n    return latents * 3\n",
        "def step(latents):\n    return 2 * latents\n",
        "def step(latents):\n    return latents * 2.0\n",
        'def step(latents):\n    log("a text that is used")\n    return latents * 2\n',
    ],
)
def test_any_other_code_is_noticed(fingerprint: Callable[..., str], text: str) -> None:
    assert fingerprint({"families/sdxl/denoise.py": text}) != fingerprint({})


def test_a_file_that_comes_goes_or_moves_is_noticed(fingerprint: Callable[..., str]) -> None:
    flash = "runtime/kernels/flash.py"
    changes = ({}, {"runtime/new.py": ""}, {"runtime/newer.py": ""}, {flash: None})
    assert len({fingerprint(change) for change in changes}) == len(changes)


def test_the_order_of_files_does_not_matter(write_code: Callable[..., Path]) -> None:
    root = write_code()
    files = [root / name for name in FILES]
    assert fingerprint_files(files, root=root) == fingerprint_files(reversed(files), root=root)


def test_every_pattern_finds_code_here() -> None:
    for family in FAMILIES:
        for pattern in PLAN_CODE:
            assert [*ROOT.glob(pattern.format(family=family))], pattern


# Values of a program's arguments, words for people, files: nothing of them is compiled.
HARMLESS = {
    "errors",
    "field_errors",
    "files/locked",
    "files/sizes",
    "files/whole",
    "loras/file_names",
    "loras/files",
    "loras/settings",
    "loras/tensors",
    "mesh_text",
    "messages",
    "models/adopting",
    "models/catalog",
    "models/fingerprints",
    "models/gguf_files",
    "models/single_files",
    "models/weight_files",
    "pictures/fitting",
    "pictures/gif_blocks",
    "pictures/reading",
    "prompts/chunks",
    "prompts/emphasis",
    "prompts/reading",
    "recipes/batching",
    "recipes/cache_kinds",
    "recipes/recipe",
    "recipes/schedulers",
    "recipes/step_cache",
    "stages",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_a_family_is_built_on_is_covered_or_makes_no_programs(family: str) -> None:
    covered = {file for pattern in PROGRAM_CODE for file in ROOT.glob(pattern.format(family=family))}
    imported = {
        name
        for file in covered
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        if name.startswith("pipelines.")
    }
    paths = {name: ROOT.joinpath(*name.split(".")[1:]) for name in imported}
    files = {
        file for path in paths.values() for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()
    }
    assert {file.relative_to(ROOT).with_suffix("").as_posix() for file in files - covered} <= HARMLESS


def test_programs_and_plans_of_weights_in_int8_have_fingerprints_of_their_own() -> None:
    full = load_catalog().get("demo-flux2")
    rounded = replace(full, weights="int8")
    assert fingerprint_programs(full) != fingerprint_programs(rounded)
    assert fingerprint_plans(full) != fingerprint_plans(rounded)
