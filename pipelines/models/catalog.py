"""The catalogue: which models there are, and in which fixed shapes each of them runs.

A shape is a fixed resolution preset and means one compiled program; nothing outside a model's list ever runs, so
nothing recompiles while people work. Read from `presets/models.toml`, plus every folder in diffusers layout and every
single-file checkpoint under the data directory's `models/`, plus the entries of its models.toml. What lies there and is
no model is listed with why.
Not here: a model's fields (model.py), what a folder in `models/` is (own_models.py), and what it takes from a shipped
model (adopting.py), how entries are written (catalog_entries.py), loading weights (runtime/weights/stored.py), which
programs are warm (the worker knows).
"""

import functools
import itertools
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel

from pipelines.errors import ModelError
from pipelines.families import FAMILIES, find_traits
from pipelines.loras.files import LoraFile, find_loras, list_lora_files
from pipelines.messages import Message, say
from pipelines.models.adopting import adopt_file, adopt_folder
from pipelines.models.catalog_entries import (
    change,
    check_entry,
    check_limits,
    check_size,
    make_entry_type,
    read_entries,
    read_fields,
    read_weights,
)
from pipelines.models.model import VIDEO_STRIDE as VIDEO_STRIDE
from pipelines.models.model import AttentionOptions as AttentionOptions
from pipelines.models.model import Model
from pipelines.models.model import Shape as Shape
from pipelines.models.moved import find_repository
from pipelines.models.own_models import (
    INDEX,
    WEIGHTED,
    Found,
    OwnFile,
    OwnModel,
    UnusableModel,
    find_own_models,
    make_id,
    read_own_model,
    telling,
)
from pipelines.models.single_files import SECOND, SingleFile, recognise_file
from pipelines.recipes.step_cache import OWN_FILE as STEP_CACHES_FILE
from pipelines.recipes.step_cache import SHIPPED_FILE, StepCaches

PRESETS_DIR = Path(__file__).resolve().parents[2] / "presets"
CONFIGS_DIR = PRESETS_DIR / "configs"
CATALOG_FILE = PRESETS_DIR / "models.toml"
OWN_FILE = "models.toml"  # in the data directory
_OF_FILE = ("file", "file_2", "base", "variant", "scheduler_changes", "licence", "description")
_REQUIRED = ("family", "shapes", "steps", "guidance_scale", "scheduler")


@dataclass(frozen=True, kw_only=True)
class PartialModel:
    """A user's folder of which some components' weights are not here; enough for plans, or for some stages.

    `lacking` maps each of these components to the reason.
    """

    model: Model
    lacking: Mapping[str, UnusableModel]


@dataclass(frozen=True)
class Catalog:
    """The models of this machine, in the order they are shown, and the folder of its LoRAs.

    `unusable` lists what lies in `models/` or stands in models.toml and is no model to use; the folders among it whose
    configs are whole are also in `partial`. `own_loras` are LoRA files elsewhere, which only the command line may name.
    """

    models: tuple[Model, ...]
    loras_dir: Path | None = None
    own_loras: tuple[LoraFile, ...] = ()
    unusable: tuple[UnusableModel, ...] = ()
    partial: tuple[PartialModel, ...] = ()

    def get(self, model_id: str) -> Model:
        """Returns a model by its id, or by the hub repository that it comes from, or that was there before.

        Raises ModelError for one that cannot be used, and for an unknown one, naming the known ones.
        """
        name = find_repository(model_id)
        for model in self.models:
            if name in (model.id, model.repo or model.id):
                return model
        for one in self.unusable:
            if one.id == model_id:
                raise ModelError(
                    say("The model {model} cannot be used: {reason}", model=repr(model_id), reason=one.reason),
                    advice=one.advice,
                )
        raise ModelError(
            say("There is no model {model}.", model=repr(model_id)),
            advice=_name_known(model.id for model in self.models),
        )

    def with_partial(
        self, accepts: Callable[[Model, Collection[str]], bool] = lambda _model, _lacking: True
    ) -> "Catalog":
        """Returns the catalogue with partial models among the models, if `accepts(model, lacking components)` says so.

        Loading one of them for a stage whose weights are lacking raises ModelError.
        """
        accepted = [one for one in self.partial if accepts(one.model, one.lacking.keys())]
        told = [problem for one in accepted for problem in one.lacking.values()]
        return replace(
            self,
            models=(*self.models, *(one.model for one in accepted)),
            partial=tuple(one for one in self.partial if one not in accepted),
            unusable=tuple(one for one in self.unusable if one not in told),
        )

    def with_weights(self, weights: str | None) -> "Catalog":
        """Returns the catalogue whose models all have their weights in this way; None leaves each model its own."""
        if weights is None:
            return self
        return replace(self, models=tuple(replace(model, weights=weights) for model in self.models))

    def find_loras(self) -> tuple[LoraFile, ...]:
        """Lists the LoRAs that recipes may name, reading the folder anew."""
        return self.own_loras + (find_loras(self.loras_dir) if self.loras_dir is not None else ())

    def list_lora_files(self) -> tuple[LoraFile, ...]:
        """Lists all files of the folder, also those that cannot be used, with the reason."""
        return self.own_loras + (list_lora_files(self.loras_dir) if self.loras_dir is not None else ())

    @property
    def default(self) -> Model:
        return self.models[0]


def load_catalog(
    models_dir: Path | None = None,
    loras_dir: Path | None = None,
    *,
    own_file: Path | None = None,
    file: Path = CATALOG_FILE,
) -> Catalog:
    """Loads the shipped models, the folders in `models_dir` (a user's own checkpoints) and the entries of `own_file`.

    What a user brought never ends the reading: it is `unusable`, with why. Raises ModelError only for the shipped
    `file`.
    """
    reading = _Reading(_read_shipped(file), loras_dir)
    for one in find_own_models(models_dir) if models_dir else ():
        reading.add_found(one)
    for one in read_entries(own_file) if own_file is not None and own_file.exists() else ():
        if isinstance(one, UnusableModel):
            reading.unusable.append(one)
        else:
            reading.add_entry(*one, models_dir=models_dir or Path())
    if own_file is not None:
        reading.add_step_caches(own_file.with_name(STEP_CACHES_FILE))
    paired = {file.with_suffix("") for model in reading.models.values() if model.file_2 for file in model.own_files}
    return Catalog(
        tuple(reading.models.values()),
        loras_dir,
        unusable=tuple(one for one in reading.unusable if (models_dir or Path()) / one.name not in paired),
        partial=tuple(reading.partial.values()),
    )


def read_data_dir(data_dir: Path) -> Catalog:
    """Loads the catalogue of a data directory: its `models/`, its `loras/` and its models.toml."""
    return load_catalog(data_dir / "models", data_dir / "loras", own_file=data_dir / OWN_FILE)


def open_model(place: Path, *, loras_dir: Path | None = None) -> Model:
    """Returns the model of a folder in diffusers layout, or of a single file, wherever it lies; raises ModelError."""
    reading = _Reading(_read_shipped(CATALOG_FILE), loras_dir)
    problems: list[UnusableModel] = []
    with telling(problems, place.name, place):
        return reading.open(place)
    raise ModelError(problems[0].reason, advice=problems[0].advice)


class _Reading:
    """The models read so far, by id, and what of the user's could not be one."""

    def __init__(self, shipped: Sequence[Model], loras_dir: Path | None) -> None:
        self.shipped = shipped
        self.models = {model.id: replace(model, loras_dir=loras_dir) for model in shipped}
        self.partial: dict[str, PartialModel] = {}
        self.unusable: list[UnusableModel] = []
        self._loras_dir = loras_dir

    def add_found(self, one: Found) -> None:
        """Adds something that lies in `models/`."""
        if isinstance(one, UnusableModel):
            self.unusable.append(one)
            return
        with telling(self.unusable, one.name, one.single.file if isinstance(one, OwnFile) else one.folder):
            if not one.id:
                raise ModelError(
                    say("Its name has neither letters nor digits."), advice=say("Give the folder another name.")
                )
            if one.id in self.models or one.id in self.partial:
                raise ModelError(
                    say("Another model is called {id} already.", id=one.id), advice=say("Give the folder another name.")
                )
            model = (
                self._adopt_file(one.single, one.name) if isinstance(one, OwnFile) else adopt_folder(one, self.shipped)
            )
            model = replace(model, id=one.id, loras_dir=self._loras_dir)
            check_limits(model)
            if isinstance(one, OwnFile) or not one.lacking:
                self.models[model.id] = model
                return
            self.partial[model.id] = PartialModel(model=model, lacking=one.lacking)
            self.unusable += one.lacking.values()

    def open(self, place: Path) -> Model:
        """Returns what lies somewhere else than in `models/`."""
        if place.is_file():
            model = replace(self._adopt_file(recognise_file(place), place.stem), id=make_id(place.stem))
        else:
            found = read_own_model(place, place.resolve().name)
            problems = [found] if isinstance(found, UnusableModel) else [*found.lacking.values()]
            if problems:
                raise ModelError(problems[0].reason, advice=problems[0].advice)
            assert isinstance(found, OwnModel)
            model = adopt_folder(found, self.shipped)
        check_limits(model)
        return replace(model, loras_dir=self._loras_dir)

    def add_entry(self, name: str, entry: Mapping[str, Any], models_dir: Path) -> None:
        """Adds a model from a user's models.toml, or changes one that is there."""
        with telling(self.unusable, name, models_dir):
            fields = check_entry(entry, _entry_type())
            model_id, partial = fields["id"], self.partial.get(fields["id"])
            known = partial.model if partial else self.models.get(model_id)
            fields = read_weights(fields, models_dir, known)
            model = change(known, fields) if known else self._make(fields, models_dir)
            check_limits(model)
            if partial is not None:
                self.partial[model_id] = replace(partial, model=model)
            else:
                self.models[model_id] = replace(model, loras_dir=self._loras_dir)

    def add_step_caches(self, file: Path) -> None:
        """Gives the models what was found of their steps here."""
        with telling(self.unusable, file.name, file.parent):
            for model_id, found in StepCaches.read(file).of_model.items():
                if model_id in self.models:
                    self.models[model_id] = replace(self.models[model_id], step_cache=found)
                elif model_id in self.partial:
                    partial = self.partial[model_id]
                    self.partial[model_id] = replace(partial, model=replace(partial.model, step_cache=found))

    def _make(self, fields: dict[str, Any], models_dir: Path) -> Model:
        """Makes a new entry's model: from its own fields, those of the model that it is `like`, or its folder's."""
        like, configs = fields.pop("like", None), fields.pop("configs", None)
        if fields.keys().isdisjoint({"repo", "path", "file"}):
            raise ModelError(
                say(
                    "It says neither where its weights are on the hub (repo) nor in which folder (path) or file (file)."
                ),
                advice=say("Add one of them; to change a model that is there, use that model's id."),
            )
        if "file" in fields:
            second = recognise_file(fields["file_2"]) if "file_2" in fields else None
            template = self._adopt_file(recognise_file(fields["file"]), fields["id"], configs=configs, second=second)
            changes = fields.pop("scheduler_changes", {})
            fields["scheduler_changes"] = {**template.scheduler_changes, **changes}
        elif "path" in fields:
            fields["path"] = folder = models_dir / fields["path"]
            found = read_own_model(folder, fields["id"])
            problems = [found] if isinstance(found, UnusableModel) else [*found.lacking.values()]
            if problems:
                raise ModelError(problems[0].reason, advice=problems[0].advice)
            assert isinstance(found, OwnModel)
            template = adopt_folder(found, self.shipped)
        else:
            fields["repo"] = find_repository(fields["repo"])
            fields.setdefault("revision", "main")
            template = None
        if like is not None:
            if like not in self.models:
                raise ModelError(
                    say("There is no model {like} that it could be like.", like=repr(like)),
                    advice=_name_known(self.models),
                )
            like_it = self.models[like]
            own = template
            template = replace(like_it, repo="", revision="", variant="", path=None, learns_from="", is_demo=False)
            if own is not None:  # a file's, which `like` gives other settings
                template = replace(template, **{name: getattr(own, name) for name in _OF_FILE})
        if template is not None:
            words: dict[str, Any] = {"title": fields["id"], "file_names": "", "examples": ()}
            words |= {} if "file" in fields else {"licence": "", "description": ""}
            changes = read_fields(fields)
            for shape in changes.get("shapes", ()):
                check_size(shape, fields["id"], like=template.shapes)
            return replace(template, **(words | changes))
        fields.setdefault("title", fields["id"])
        fields.setdefault("default_shape", next(iter(fields.get("shapes", ())), ""))
        missing = [name for name in _REQUIRED if name not in fields]
        if missing:
            raise ModelError(
                say("It lacks {names}.", names=", ".join(missing)),
                advice=say('Add these, or name a model whose settings it has, such as like = "sdxl-base".'),
            )
        if fields["family"] not in FAMILIES:
            raise ModelError(
                say("There is no family {family}.", family=repr(fields["family"])),
                advice=say("Families: {families}.", families=", ".join(FAMILIES)),
            )
        model = Model(**read_fields(fields))
        for shape in model.shapes:
            family = [other.shapes for other in self.shipped if other.family == model.family]
            check_size(shape, model.id, like=[*itertools.chain(*family)])
        return model

    def _adopt_file(
        self, single: SingleFile, name: str, *, configs: str | None = None, second: SingleFile | None = None
    ) -> Model:
        """Returns a single-file checkpoint as an entry like its base: the model that is named, or the one that fits.

        One of two experts needs its `second`.
        """
        if single.likeness.is_expert and second is None:
            raise ModelError(
                say("It is one of two experts, and makes nothing alone."),
                advice=say("Name both in models.toml: file = the high-noise one, file_2 = the low-noise one."),
            )
        if configs is not None and configs not in self.models:
            raise ModelError(
                say("There is no model {model} whose configs it could have.", model=repr(configs)),
                advice=_name_known(self.models),
            )
        bases = [self.models[configs]] if configs is not None else [*self.shipped]
        bases = [base for base in bases if base.family == single.family]
        if not bases:
            raise ModelError(
                say(
                    "It is a checkpoint of {family}, which {model} is not.",
                    family=find_traits(single.family).title,
                    model=configs,
                ),
                advice=say("Name a model of its family as `configs`, or leave it out."),
            )
        folders = {base.id: folder for base in bases if (folder := find_folder(base)) is not None}
        folders = {one: folder for one, folder in folders.items() if (folder / SECOND).is_dir() == (second is not None)}
        base_id = single.find_base(folders.items())
        if second is not None:
            second.find_base([(base_id, folders[base_id])])
        base = self.models[base_id]
        lacking = single.list_lacking(folders[base_id], WEIGHTED, has_second=second is not None)
        adopted = adopt_file(single, name, base, lacking)
        return adopted if second is None else replace(adopted, file_2=second.file)


def find_folder(model: Model) -> Path | None:
    """Returns the folder with a model's configs, a single file's base's; None if there is none."""
    place = model.in_place
    folder = CONFIGS_DIR / place.id if place.path is None else place.path
    return folder if (folder / INDEX).is_file() else None


def find_shipped(model: Model) -> str:
    """Returns the id of the shipped model that this one is, or whose configs its file has; "" for all others."""
    place = model.in_place
    shipped = _read_shipped(CATALOG_FILE)
    return next((one.id for one in shipped if (one.repo, one.path) == (place.repo, place.path)), "")


def _name_known(models: Iterable[str]) -> Message:
    return say("Known models: {names}.", names=", ".join(models))


@functools.cache
def _entry_type() -> type[BaseModel]:
    return make_entry_type(get_type_hints(Model))


@functools.cache
def _read_shipped(file: Path) -> tuple[Model, ...]:
    entries = tomllib.loads(file.read_text("utf-8"))["model"]
    caches = StepCaches.read(SHIPPED_FILE).of_model
    return tuple(Model(**read_fields(entry, base=PRESETS_DIR), step_cache=caches.get(entry["id"])) for entry in entries)
