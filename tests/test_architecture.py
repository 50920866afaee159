"""The layers of the source, read from its syntax trees: imports point down, the app stays light, files say why."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.families import FAMILIES

# Highest first. A module belongs to the longest name that it begins with; it may import from there and from lower
from tests.places import ROOT

# layers, and names in one layer do not see each other.
LAYERS = (
    ("app",),
    ("studio.serving",),
    ("studio.hosting", "studio.worker.__main__"),
    ("studio.cluster",),
    ("studio.ui", "studio.api", "studio.worker"),
    ("studio.asking", "studio.asking_to_train"),
    ("studio.visit", "studio.further"),
    ("studio.context",),
    ("studio.services",),
    ("studio.jobs", "studio.library", "studio.access"),
    ("studio.events", "studio.notes"),
    ("studio.database",),
    ("studio.models",),
    ("studio.flags",),
    ("studio.flag_values", "studio.settings", "studio.address", "studio.storage"),
    ("studio.access_settings", "studio.ray_ports"),
    ("pipelines.__main__",),
    ("pipelines.commands",),
    ("pipelines.doctor",),
    ("pipelines.demos",),
    ("pipelines.training", "pipelines.plan"),
    ("pipelines.program_sets",),
    ("pipelines.models.model_arrivals",),
    ("pipelines.generate", "pipelines.registry", "pipelines.models.model_manager"),
    ("pipelines.models.description", "pipelines.models.own_entries"),
    ("pipelines.finite",),
    ("pipelines.families.fake", *(f"pipelines.families.{family}" for family in FAMILIES)),
    ("pipelines.families.unet",),
    ("pipelines.families.loading", "pipelines.families.learnt_preview"),
    ("pipelines.families.autoencoder_kl", "pipelines.families.language_model"),
    ("pipelines.families.base", "pipelines.families.spread"),
    ("pipelines.families.reused_steps",),
    ("pipelines.families.embedding_cache", "pipelines.families.remote_encoder", "pipelines.families.parts"),
    ("pipelines.families.layout",),
    ("pipelines.runtime.weights", "pipelines.runtime.programs", "pipelines.runtime.sampling"),
    ("pipelines.runtime.bridge",),
    ("pipelines.runtime.kernels",),
    ("pipelines.runtime.devices",),
    ("pipelines.families.protocol",),
    ("pipelines.families.trainable",),
    ("pipelines.stages", "pipelines.files.stage_files"),
    ("pipelines.files.outputs",),
    ("pipelines.files.metadata", "pipelines.files.still"),
    ("pipelines.files.foreign_video",),
    ("pipelines.files.video",),
    ("pipelines.mesh_text", "pipelines.pictures.reading"),
    ("pipelines.recipes.batching",),
    ("pipelines.recipes.resolving",),
    ("pipelines.recipes.recipe", "pipelines.pictures.references"),
    ("pipelines.loras.fit", "pipelines.recipes.sigmas"),
    ("pipelines.prompts",),
    ("pipelines.models.fingerprints",),
    ("pipelines.pictures.fitting",),
    ("pipelines.models.catalog",),
    ("pipelines.models.catalog_entries", "pipelines.models.adopting"),
    ("pipelines.models.own_models", "pipelines.models.model"),
    ("pipelines.models.single_files",),
    ("pipelines.loras.files",),
    ("pipelines.models.weight_files",),
    ("pipelines.loras.tensors", "pipelines.loras.settings", "pipelines.models.gguf_files", "pipelines.web.web_files"),
    ("pipelines.loras.file_names",),
    ("pipelines.web.public_addresses",),
    ("pipelines.families",),
    tuple(f"pipelines.families.{family}.traits" for family in FAMILIES),
    tuple(f"pipelines.families.{family}.lora_traits" for family in FAMILIES),
    ("pipelines.families.unet.recognition", "pipelines.families.unet.file_recognition"),
    ("pipelines.families.traits",),
    ("pipelines.recipes.step_cache",),
    ("pipelines.recipes.schedulers", "pipelines.recipes.taylor", "pipelines.models.moved"),
    ("pipelines.recipes.cache_kinds",),
    ("pipelines.errors", "pipelines.field_errors", "pipelines.modest"),
    (
        "pipelines.messages",
        "pipelines.files.locked",
        "pipelines.files.whole",
        "pipelines.files.unread",
        "pipelines.files.sizes",
        "pipelines.pictures.gif_blocks",
    ),
)

# Downward in spirit: the app starts the worker's supervisor, and the registry reaches the families only when called.
ALLOWED = {("studio.worker", "pipelines.registry")}

HEAVY = {"jax", "torch", "torchax", "diffusers", "transformers", "optax"}
LIGHT_PACKAGES = ("app", "studio")
FLOOR = (
    "messages",
    "field_errors",
    "errors",
    "recipes/schedulers",
    "loras/files",
    "models/weight_files",
    "models/own_models",
    "models/single_files",
    "models/model_manager",
    "models/description",
    "models/own_entries",
    "recipes/step_cache",
    "recipes/taylor",
    "recipes/sigmas",
    "models/model",
    "models/adopting",
    "models/catalog_entries",
    "models/moved",
    "pictures/reading",
    "finite",
    "pictures/fitting",
    "models/catalog",
    "recipes/recipe",
    "recipes/batching",
    "mesh_text",
    "pictures/references",
    "stages",
    "generate",
    "program_sets",
    "files/metadata",
    "files/still",
    "files/video",
    "files/stage_files",
    "models/fingerprints",
    "registry",
    "plan/estimate",
    "plan/lines",
    "plan/training",
    "plan/training_report",
    "plan/verdicts",
    "training/settings",
    "training/sizes",
    "families/__init__",
    "families/protocol",
    "families/traits",
    *(f"families/{family}/{file}" for family in FAMILIES for file in ("__init__", "traits")),
)
MIN_FILES = 60  # a test that reads no files would pass forever


@functools.cache
def read_tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def list_sources() -> list[Path]:
    files = [ROOT / "app.py", *ROOT.glob("studio/**/*.py"), *ROOT.glob("pipelines/**/*.py")]
    return sorted(file for file in files if "__pycache__" not in file.parts)


def name_module(file: Path) -> str:
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_imports(tree: ast.AST, *, is_top_level_only: bool = False) -> Iterator[str]:
    nodes = tree.body if is_top_level_only and isinstance(tree, ast.Module) else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _name_called(node.func) in ("import_module", "__import__"):
            yield from _find_named(node.args[0])


def _name_called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _find_named(name: ast.expr) -> list[str]:
    """The modules that a call of importlib may mean: for an f-string all of ours with such a name.

    Of a name that comes from elsewhere the source says nothing.
    """
    if isinstance(name, ast.Constant):
        return [str(name.value)]
    if not isinstance(name, ast.JoinedStr):
        return []
    pattern = "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in name.values)
    return [module for module in map(name_module, list_sources()) if re.fullmatch(pattern, module)]


def find_layer(module: str) -> tuple[int, str] | None:
    found = [
        (level, name)
        for level, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]
    return max(found, key=lambda layer: len(layer[1]), default=None)


def test_the_test_sees_the_source() -> None:
    assert len(list_sources()) >= MIN_FILES


def test_an_import_by_name_is_seen_too() -> None:
    code = 'import importlib\nimportlib.import_module("pipelines.plan.planner")\n'
    code += 'importlib.import_module(f"pipelines.families.{name}.traits")'
    expected = {"pipelines.plan.planner", *(f"pipelines.families.{family}.traits" for family in FAMILIES)}
    assert {*find_imports(ast.parse(code))} == {"importlib", *expected}


def test_imports_point_down() -> None:
    wrong = []
    for file in list_sources():
        here = find_layer(name_module(file))
        if here is None:
            continue
        for imported in find_imports(read_tree(file)):
            there = find_layer(imported)
            if there is None or there == here or (here[1], there[1]) in ALLOWED:
                continue
            if there[0] <= here[0]:
                wrong.append(f"{file.relative_to(ROOT)} imports {imported}")
    assert not wrong


def test_no_module_imports_another_ones_private_names() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in list_sources()
        for name in find_imports(read_tree(file))
        if name.startswith(("pipelines.", "studio.")) and re.search(r"\._(?!_)", name)
    ]
    assert not wrong


def test_no_product_path_imports_the_demos_own_making() -> None:
    users = {
        file.relative_to(ROOT).as_posix()
        for file in list_sources()
        if any(name.startswith("pipelines.demos") for name in find_imports(read_tree(file)))
    }
    assert {file for file in users if not file.startswith("pipelines/demos/")} == {"pipelines/commands/make_demo.py"}


def test_every_module_belongs_to_a_layer() -> None:
    """But for packages whose `__init__` only says what they are."""
    homeless = [
        name_module(file)
        for file in list_sources()
        if find_layer(name_module(file)) is None and list(find_imports(read_tree(file))) not in ([], ["sys"])
    ]
    assert not homeless


@pytest.mark.parametrize("package", LIGHT_PACKAGES)
def test_the_app_and_the_studio_never_import_heavy_libraries(package: str) -> None:
    for file in list_sources():
        if name_module(file).split(".")[0] == package:
            roots = {name.split(".")[0] for name in find_imports(read_tree(file))}
            assert not roots & HEAVY, file


@pytest.mark.parametrize("name", FLOOR)
def test_the_floor_imports_without_heavy_libraries(name: str) -> None:
    tree = ast.parse((ROOT / "pipelines" / f"{name}.py").read_text("utf-8"))
    roots = {module.split(".")[0] for module in find_imports(tree)}
    assert not roots & HEAVY


def test_every_file_opens_with_why_it_exists() -> None:
    silent = [file for file in list_sources() if not ast.get_docstring(read_tree(file))]
    assert not silent


def test_no_route_is_async_without_awaiting() -> None:
    """An `async def` route that blocks stops the whole server."""
    wrong = []
    for file in ROOT.glob("studio/api/**/*.py"):
        for node in ast.walk(read_tree(file)):
            if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list:
                waits = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield)
                if not any(isinstance(inner, waits) for inner in ast.walk(node)):
                    wrong.append(f"{file.name}: {node.name}")
    assert not wrong


def test_only_the_bridge_touches_torchax() -> None:
    users = [
        file.relative_to(ROOT).as_posix()
        for file in list_sources()
        if any(name.split(".")[0] == "torchax" for name in find_imports(read_tree(file)))
    ]
    assert users == ["pipelines/runtime/bridge/dispatch.py", "pipelines/runtime/bridge/environment.py"]


def test_only_settings_and_start_up_read_the_environment() -> None:
    allowed = {
        "app.py",  # hands the environment to settings
        "studio/serving.py",  # silences telemetry before gradio is imported
        "pipelines/runtime/devices/allocator.py",  # chooses the allocator before all that allocates
        "pipelines/runtime/devices/platform.py",  # chooses the backend before jax is imported
        "pipelines/runtime/devices/pods.py",  # reads what a pod says of its hosts, before jax is started
        "pipelines/commands/bench/process.py",  # hands it on to the measured processes
        "studio/cluster/__main__.py",  # hands it to settings, and gives Ray the token before it is imported
        "studio/cluster/actor.py",  # hands it to settings, limited to the worker's devices
        "studio/cluster/join.py",  # hands it on to the node, and gives Ray the token before it is imported
        "studio/cluster/ray_cluster.py",  # hands it on to the head
        "studio/worker/__main__.py",  # hands it to settings
        "studio/worker/supervisor.py",  # hands it on to the worker
    }
    readers = {file.relative_to(ROOT).as_posix() for file in list_sources() if "os.environ" in file.read_text("utf-8")}
    assert readers <= allowed


@pytest.mark.process
def test_an_older_python_is_told_so_in_one_line() -> None:
    """What it reads before it is told parses there too, and nothing is imported before."""
    for name in ("app.py", "pipelines/__init__.py"):
        tree = ast.parse((ROOT / name).read_text("utf-8"), feature_version=(3, 8))
        assert next(iter(find_imports(tree, is_top_level_only=True))) == {"app.py": "pipelines"}.get(name, "sys")
    code = "import sys; sys.version_info = (3, 10, 13, 'final', 0); import pipelines"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "needs Python 3.11 or newer" in ran.stderr
    assert "is 3.10.13" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_nothing_waits_by_what_may_lose_a_cancellation() -> None:
    """asyncio.wait_for of Python 3.11 swallows one that comes as the awaited is done; asyncio.timeout does not."""
    assert not [file for file in list_sources() if "asyncio.wait_for(" in file.read_text("utf-8")]
