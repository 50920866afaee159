"""What lies in a user's folder `models/`: checkpoints as folders or single files, and everything else with its reason.

Folders may be nested (`author/name`), as hub clients lay them out, and the hub's own cache layout is read too. Nothing
that lies there is passed over in silence and nothing ends the reading: what cannot be used is listed with why, and what
to do. Configs, names and headers are read, never weights. Importable without jax.
Not here: what a find becomes (catalog.py), which model a single file is (single_files.py), a family's rules (its
traits.py).
"""

import contextlib
import json
import logging
import os
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.errors import ModelError
from pipelines.families import list_traits, name_families
from pipelines.families.traits import Likeness, Unsupported
from pipelines.messages import Message, english, join, say
from pipelines.models.single_files import WHOLE, SingleFile, recognise_file
from pipelines.models.weight_files import ARCHIVES, OTHER_WEIGHTS, SUFFIXES, UNFINISHED, check_weights

INDEX = "model_index.json"
LIKE = "_lumesh_like"
"""Where the index of a folder that was trained here says which shipped model it was made from."""
MAX_DEPTH = 4  # levels of folders below models/ that are looked into

# Components whose folders hold weights; tokenizers and schedulers have none.
WEIGHTED = ("unet", "transformer", "transformer_2", "vae", "text_encoder", "text_encoder_2", "image_encoder")
UNWEIGHTED = ("tokenizer", "tokenizer_2", "scheduler", "image_processor")
TEXT_ENCODERS = frozenset({"text_encoder", "text_encoder_2"})

_PLAIN = re.compile(r"[a-z0-9]")
_HUB_FOLDER = re.compile(r"models--(.+)")  # of huggingface_hub's cache

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class UnusableModel:
    """Something in `models/` or models.toml that is no model to use: what it is called there, why, and what to do."""

    name: str
    reason: Message
    advice: Message

    @property
    def id(self) -> str:
        """The id that it would have in the catalogue."""
        return make_id(self.name)


@dataclass(frozen=True, kw_only=True)
class OwnModel:
    """A folder in diffusers layout whose configs belong to a family.

    `scheduler_config` is its own scheduler's, empty without one; `text_length` is what our trainer writes for text
    encoders of short captions. `like` is the shipped model that it was trained from, "" where that is not known.
    `lacking` maps each component whose weights are not all here to the reason; configs alone suffice for plans.
    """

    name: str
    folder: Path
    family: str
    likeness: Likeness
    scheduler_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    text_length: int | None = None
    like: str = ""
    lacking: Mapping[str, UnusableModel] = field(default_factory=dict[str, UnusableModel])

    @property
    def id(self) -> str:
        return make_id(self.name)


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """A single-file checkpoint of a family here; `name` is without its ending."""

    name: str
    single: SingleFile

    @property
    def id(self) -> str:
        return make_id(self.name)


Found = OwnModel | OwnFile | UnusableModel


def make_id(name: str) -> str:
    """Returns the catalogue's id for a path below `models/`: `author/My Model` becomes `author-my-model`.

    A name without any of these letters and digits keeps its own; one without letters and digits leaves nothing.
    """
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    return plain if _PLAIN.search(plain) else re.sub(r"[\W_]+", "-", name.lower()).strip("-")


def find_own_models(models_dir: Path) -> Iterator[Found]:
    """Yields everything in the folder that is a model, or looks as if it should be one, in the order of its names."""
    if (models_dir / INDEX).is_file():
        astray = ModelError(
            say("A model's files lie in models/ itself."),
            advice=say("Move them into a folder of their own in models/."),
        )
        yield _tell(INDEX, astray)
    if models_dir.is_dir():
        yield from _look_into(models_dir, name="", depth=0, inside=frozenset())


def _look_into(folder: Path, *, name: str, depth: int, inside: frozenset[Path]) -> Iterator[Found]:
    """Yields what is in a folder; `inside` are the folders around it, into which no link leads again."""
    try:
        real = folder.resolve()
        entries = [] if real in inside else sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield _tell(
            name or folder.name,
            ModelError(
                say("{file} cannot be read: {error}.", file=folder, error=error.strerror),
                advice=say("Check who may read it, then look again."),
            ),
        )
        return
    is_empty = True
    for entry in entries:
        if entry.name.startswith((".", "__")):
            continue
        below = f"{name}/{entry.name}".removeprefix("/")
        found: list[Found] = []
        with telling(found, below, Path(entry.path)):  # of a link to itself, or to a folder of somebody else's
            found += _look_at(entry, below, depth=depth, inside=inside | {real})
        is_empty = is_empty and not found
        yield from found
    if is_empty and depth == 1:
        yield _tell(name, ModelError(say("There is nothing in it that looks like a model."), advice=WHOLE))


def _look_at(entry: os.DirEntry[str], name: str, *, depth: int, inside: frozenset[Path]) -> Iterator[Found]:
    path = Path(entry.path)
    if entry.is_symlink() and not os.path.lexists(os.path.realpath(path)):
        raise ModelError(
            say("It is a link to {target}, which is not there.", target=path.readlink()),
            advice=say("Mount its disk, or make the link anew."),
        )
    if not entry.is_dir():
        yield from _read_file(path, name)
    elif (path / INDEX).is_file():
        yield read_own_model(path, name)
    elif (problem := _find_headless(path)) is not None:
        yield _tell(name, problem)
    elif depth == 0 and (match := _HUB_FOLDER.fullmatch(entry.name)) and (path / "snapshots").is_dir():
        yield from _read_hub_folder(path / "snapshots", match[1].replace("--", "/"))
    elif depth + 1 < MAX_DEPTH:
        yield from _look_into(path, name=name, depth=depth + 1, inside=inside)


def _read_hub_folder(snapshots: Path, name: str) -> Iterator[Found]:
    folders = sorted(folder for folder in snapshots.iterdir() if folder.is_dir())
    for folder in folders:
        yield read_own_model(folder, name if len(folders) == 1 else f"{name}/{folder.name[:8]}")


def read_own_model(folder: Path, name: str) -> OwnModel | UnusableModel:
    """Reads a folder that should hold a model; whatever its files hold, they end nothing but this one model."""
    found: list[OwnModel | UnusableModel] = []
    with telling(found, name, folder):
        found.append(_read_checkpoint(folder, name))
    return found[0]


@contextlib.contextmanager
def telling(unusable: list[Any], name: str, place: Path) -> Generator[None]:
    """Lists whatever error is raised inside as the reason why the model of this name, at this place, cannot be used."""
    try:
        yield
    except ModelError as error:
        unusable.append(_tell(name, error))
    except Exception as error:  # a family's rules meet whatever people's configs hold
        reason = english(f"{type(error).__name__}: {error}")
        if isinstance(error, FileNotFoundError) and error.filename:
            reason = say("{file} is not there", file=os.path.relpath(error.filename, place))
        elif not isinstance(error, OSError | ValueError | KeyError | TypeError | RecursionError):
            log.exception("the model folder %s", place)
        incomplete = ModelError(
            say("{folder} is not a complete diffusers checkpoint: {reason}.", folder=place, reason=reason),
            advice=say(
                "Wait if its download is under way; else copy the whole folder that save_pretrained() wrote, or "
                "remove it."
            ),
        )
        unusable.append(_tell(name, incomplete))


def _read_checkpoint(folder: Path, name: str) -> OwnModel:
    index: Mapping[str, Any] = json.loads((folder / INDEX).read_text("utf-8"))
    pipeline_class = index["_class_name"]
    for family, traits in list_traits():
        if pipeline_class in traits.unsupported:
            raise _refuse(traits.unsupported[pipeline_class])
        if pipeline_class in traits.pipeline_classes and traits.read_local is not None:
            try:
                likeness = traits.read_local(folder, index)
            except Unsupported as found:
                raise _refuse(found.kind) from found
            text_length = index.get("_max_sequence_length")
            return OwnModel(
                name=name,
                folder=folder,
                family=family,
                likeness=likeness,
                scheduler_config=_read_scheduler(folder),
                text_length=None if text_length is None else int(text_length),
                like=str(index.get(LIKE) or ""),
                lacking=_find_lacking(folder, name, index),
            )
    raise ModelError(
        say("Its pipeline {pipeline} is of no family that runs here.", pipeline=pipeline_class),
        advice=say("Use a checkpoint for {families}.", families=name_families()),
    )


def _refuse(kind: str) -> ModelError:
    return ModelError(
        say("It is {kind}, which no code here runs.", kind=kind),
        advice=say("Use a checkpoint for {families}.", families=name_families()),
    )


def _read_scheduler(folder: Path) -> dict[str, Any]:
    file = folder / "scheduler" / "scheduler_config.json"
    return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}


def _find_lacking(folder: Path, name: str, index: Mapping[str, Any]) -> dict[str, UnusableModel]:
    """Maps each component that the index names, and that is not here with all its weights, to the reason."""
    lacking: dict[str, UnusableModel] = {}
    for component in (*UNWEIGHTED, *WEIGHTED):
        if not isinstance(entry := index.get(component), list) or not any(entry):
            continue
        try:
            if not (folder / component).is_dir():
                raise ModelError(
                    say("{path} is not there.", path=folder / component),
                    advice=say("Wait if its download is under way; else copy the whole folder."),
                )
            if component in WEIGHTED:
                check_weights(folder / component)
        except ModelError as error:
            lacking[component] = _tell(name, error)
    return lacking


def _find_headless(folder: Path) -> ModelError | None:
    """Returns what is wrong with a folder that holds parts of a model, but no model_index.json."""
    if any((folder / component / "config.json").exists() for component in WEIGHTED):
        return ModelError(
            say("Its model_index.json is not there."),
            advice=say("Wait if its download is under way; else copy the whole folder."),
        )
    if not (folder / "config.json").exists():
        return None
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        kind = config.get("_class_name") or (config.get("architectures") or ["?"])[0]
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        kind = "?"
    return ModelError(
        say("It is a single part of a model ({kind}), or not in diffusers layout.", kind=kind), advice=WHOLE
    )


def _read_file(file: Path, name: str) -> Iterator[OwnFile | UnusableModel]:
    """Yields a single-file checkpoint, or why a file is no model; nothing for files that nobody takes for one."""
    ending = file.suffix.lower()
    try:
        if ending in UNFINISHED:
            raise ModelError(
                say("Its download is not finished."), advice=say("Wait until it is, or start it again; else delete it.")
            )
        if ending in ARCHIVES:
            raise ModelError(say("It is an archive."), advice=join((say("Unpack it."), WHOLE)))
        if ending in SUFFIXES:
            yield OwnFile(name=name[: -len(ending)], single=recognise_file(file))
        if ending in OTHER_WEIGHTS:
            raise ModelError(say("{ending} files are not read.", ending=ending), advice=WHOLE)
    except ModelError as error:
        yield _tell(name, error)
    except OSError as error:
        reason = ModelError(
            say("{file} cannot be read: {error}.", file=file, error=error.strerror),
            advice=say("Check who may read it, then look again."),
        )
        yield _tell(name, reason)


def _tell(name: str, error: ModelError) -> UnusableModel:
    return UnusableModel(name=name, reason=error.detail, advice=error.advice)
