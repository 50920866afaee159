"""Fingerprints everything a model's programs are made of: configs, catalogue entry, code, packages.

The cache index (runtime/programs/compiled.py) and saved plans are valid only under the fingerprint they were made with.
It covers only the code that can change a program, as syntax trees without docstrings and comments, so that a reworded
sentence leaves every shape warm.

Importable without jax, so that a page can say whether a saved plan is still valid.
"""

import ast
import functools
import hashlib
from collections.abc import Iterable
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path

from pipelines.errors import ModelError
from pipelines.messages import say
from pipelines.models.catalog import CONFIGS_DIR as CONFIGS_DIR
from pipelines.models.catalog import Model, find_folder

# Patterns below this package; `{family}` is the model's. Other files that a family imports (recipes, stages, LoRAs)
# only provide values for a program's arguments, or words for people.
PROGRAM_CODE = (
    "runtime/**/*.py",
    "families/*.py",
    "families/unet/*.py",
    "families/{family}/**/*.py",
    "models/model.py",
    "pictures/references.py",
    "recipes/schedulers.py",
)
# Files among them that only a training reads.
_OF_TRAINING = frozenset({"training.py", "trainable.py"})
PLAN_CODE = (*PROGRAM_CODE, "plan/**/*.py", "registry.py")
TRAINING_CODE = (*PLAN_CODE, "training/engine/*.py", "training/planning.py", "training/settings.py")

_CODE = Path(__file__).parents[1]
_PACKAGES = ("jax", "jaxlib", "libtpu", "torch", "torchax", "diffusers", "transformers")
_CONFIGS = ("model_index.json", "*/*config.json")
_WORDS = {
    "title",
    "licence",
    "source",
    "description",
    "knows",
    "examples",
    "negative_prompt",
    "is_demo",
    "useful_steps",
}
_VALUES = {"step_cache"}  # which programs take at run time
_PLACES = {"path", "loras_dir", "file", "file_2", "base", "vae", "scheduler_changes"}
_IDENTITY = ("id", "repo", "revision", "path", "variant", "learns_from", "file_names")  # of weights, not of programs
_SIZES = {"shapes", "default_shape"}  # programs and plans are named by the size they are for
_OF_STEP = ("family", "scheduler_changes", "text_length", "attention", "min_images", "weights")  # of a training


def find_configs(model: Model) -> Path:
    """Returns the folder to read configs from; raises ModelError if there is none."""
    folder = find_folder(model)
    if folder is None:
        raise ModelError(
            say("There are no configs of {model} here.", model=model.id),
            advice=say("Copy the checkpoint's folder, weights left out, into the data directory's models/."),
        )
    return folder


def list_components(model: Model) -> list[str]:
    """Lists the folders of the model's checkpoint that its family reads; without configs that would tell: `*`, all."""
    try:
        return sorted(folder.name for folder in find_configs(model).iterdir() if folder.is_dir())
    except ModelError:
        return ["*"]


def fingerprint_programs(model: Model) -> str:
    """Fingerprints everything that can change the model's compiled programs."""
    return _fingerprint(model, PROGRAM_CODE)


def fingerprint_plans(model: Model) -> str:
    """Fingerprints everything that can change the model's plan: its programs, and the planner's own code."""
    return _fingerprint(model, PLAN_CODE)


def fingerprint_training_plans(model: Model) -> str:
    """Fingerprints everything that can change the plan of one of the model's trainings, beside its settings."""
    patterns = [pattern.format(family=model.family) for pattern in TRAINING_CODE]
    code = fingerprint_code(patterns, leaves_out=frozenset())
    parts = (fingerprint_learning(model), fingerprint_packages(), code)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def fingerprint_learning(model: Model) -> str:
    """Fingerprints what a step of the model's trainings depends on beside code, packages and settings."""
    entry = repr([(name, getattr(model, name)) for name in _OF_STEP])
    return hashlib.sha256(f"{fingerprint_configs(model)}\n{entry}".encode()).hexdigest()[:20]


def _fingerprint(model: Model, patterns: tuple[str, ...]) -> str:
    code = fingerprint_code(pattern.format(family=model.family) for pattern in patterns)
    parts = (fingerprint_configs(model), _describe(model), fingerprint_packages(), code)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def fingerprint_configs(model: Model) -> str:
    """Fingerprints the configs' bytes, as a folder may get another checkpoint; returns "" without configs."""
    try:
        folder = find_configs(model)
    except ModelError:
        return ""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in _CONFIGS for file in folder.glob(pattern)):
        digest.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:20]


def _describe(model: Model) -> str:
    """Returns the model's catalogue entry without words for people, paths, run-time values, and the list of its sizes.

    A user's own folder has no entry in the file; its values are those of the shipped model it resembles. A single file
    is described as its base, with which it shares all programs.
    """
    if model.base is not None:
        model = replace(model, **{name: getattr(model.base, name) for name in _IDENTITY})
    names = [field.name for field in fields(model) if field.name not in _WORDS | _PLACES | _SIZES | _VALUES]
    return repr([(name, getattr(model, name)) for name in names])


@functools.cache
def fingerprint_packages() -> str:
    """Returns names and versions of the installed packages that trace and compile programs."""
    versions: list[str] = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return "\n".join(versions)


def fingerprint_code(patterns: Iterable[str], *, root: Path = _CODE, leaves_out: frozenset[str] = _OF_TRAINING) -> str:
    """Fingerprints the code in the files below `root` that match one of the `patterns`."""
    found = {file for pattern in patterns for file in root.glob(pattern) if file.name not in leaves_out}
    return fingerprint_files(found, root=root)


def fingerprint_files(files: Iterable[Path], *, root: Path = _CODE) -> str:
    """Fingerprints the code in these Python files below `root`, in any order, without comments and docstrings."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(root).as_posix()} {_fingerprint_file(file)}\n".encode())
    return digest.hexdigest()[:20]


@functools.cache  # a process keeps the code it started with; 9000 lines of a plan take 0.1 to 0.2 s
def _fingerprint_file(file: Path) -> str:
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [statement for statement in body if not _is_text(statement)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(statement: ast.AST) -> bool:
    """Returns whether a statement is documentation: a docstring, or the sentence below a constant or a field."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
