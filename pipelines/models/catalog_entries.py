"""The entries of a models.toml as people write them: read from the file, each checked field by field.

A file that cannot be read, or one wrong entry of it, is told and ends nothing else.
Not here: which models that makes (catalog.py).
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from pipelines.errors import ModelError
from pipelines.field_errors import list_fields, word_first
from pipelines.messages import join, say, tell
from pipelines.models.model import AttentionOptions, Example, Model, Shape
from pipelines.models.own_models import UnusableModel, make_id

# Fields that are written otherwise than they are kept, and those that no file sets.
_WRITTEN: Mapping[str, Any] = {
    "shapes": list[str],
    "default_shape": str,
    "path": str,
    "schedulers": list[str],
    "examples": list[str | dict[str, Any]],
    "flow_shifts": dict[str, float],
    "attention": dict[str, Any],
    "like": str,
    "file": str,
    "file_2": str,
    "configs": str,
    "vae": str,
    "prediction_type": Literal["epsilon", "v_prediction"],
    "zero_terminal_snr": bool,
}
_NOT_WRITTEN = {"loras_dir", "is_demo", "base", "scheduler_changes", "step_cache"}
_IDENTITY = {
    "family",
    "repo",
    "revision",
    "path",
    "file",
    "file_2",
    "configs",
    "variant",
    "like",
}  # of a model's weights
MAX_FLOW_SHIFT = 20
MAX_FPS = 60
MIN_STRENGTH = 0.01
LIMITS: Mapping[str, tuple[float, float]] = {
    "max_steps": (1, 128),  # MAX_STEPS of runtime/sampling/schedules.py
    "max_guidance_scale": (1, 1000),
    "guidance_scale_2": (0, 1000),
    "flow_shift": (1, MAX_FLOW_SHIFT),
    "fps": (1, MAX_FPS),
    "strength": (MIN_STRENGTH, 1),
    "text_length": (1, 1024),
    "max_batch_size": (1, 64),
    "min_images": (0, 2),
    "max_images": (0, 16),
}
"""Ranges of an entry's numbers; those of `steps` and `guidance_scale` are its own maximums."""
_MANUAL = say("The manual's page on models describes the fields.")


def make_entry_type(fields: Mapping[str, Any]) -> type[BaseModel]:
    """Returns the type of an entry whose `fields` have these types once they are read; every field may be left out."""
    written = {**{name: kind for name, kind in fields.items() if name not in _NOT_WRITTEN}, **_WRITTEN}
    options: dict[str, Any] = {name: (kind, None) for name, kind in written.items()}
    return create_model("Entry", __config__=ConfigDict(extra="forbid", strict=True), **options)


def read_entries(file: Path) -> Iterator[tuple[str, dict[str, Any]] | UnusableModel]:
    """Yields each entry with its name for people, or what is wrong with the file."""
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        yield UnusableModel(name=file.name, reason=say("It cannot be read: {error}.", error=error), advice=_MANUAL)
        return
    entries = content.pop("model", [])
    if content or not isinstance(entries, list):
        unknown = ", ".join(content) or "model"
        yield UnusableModel(
            name=file.name,
            reason=say("It holds {names}, which means nothing here.", names=unknown),
            advice=say("Each model begins with a line [[model]]."),
        )
    for number, entry in enumerate(entries if isinstance(entries, list) else (), 1):
        if isinstance(entry, dict):
            named = entry.get("id")
            yield f"{file.name}/{named if isinstance(named, str) else number}", entry
        else:
            yield UnusableModel(
                name=f"{file.name}/{number}",
                reason=say("It is not an entry."),
                advice=say("Each model begins with a line [[model]]."),
            )


def check_entry(entry: Mapping[str, Any], entry_type: type[BaseModel]) -> dict[str, Any]:
    """Returns the fields that an entry sets; raises ModelError for unknown names, wrong types and a wrong id."""
    try:
        fields = entry_type.model_validate(dict(entry)).model_dump(exclude_unset=True)
    except ValidationError as error:
        told = word_first(error.errors(), whole="entry", known=list_fields(entry_type))
        said = [say("{name}: {problem}.", name=name, problem=problem) for name, problem in told.items()]
        raise ModelError(join(said), advice=_MANUAL) from error
    model_id = fields.get("id", "")
    if not model_id or make_id(model_id) != model_id:
        raise ModelError(
            say("{id} cannot be an id.", id=repr(model_id)),
            advice=say("Write id = with small letters, digits, dots and hyphens."),
        )
    return fields


def read_fields(entry: Mapping[str, Any], *, base: Path = Path()) -> dict[str, Any]:
    """Turns an entry's texts into the values that they stand for; a `path` is below `base`."""
    fields = dict(entry)
    try:
        if "shapes" in fields:
            fields["shapes"] = tuple(map(Shape.parse, fields["shapes"]))
            fields.setdefault("default_shape", str(fields["shapes"][0]) if fields["shapes"] else "")
        if "default_shape" in fields:
            fields["default_shape"] = Shape.parse(fields["default_shape"])
    except ValueError as error:
        raise ModelError(
            say("{reason}.", reason=tell(error)),
            advice=say("Correct the sizes of {model} in models.toml.", model=entry.get("id")),
        ) from error
    if "schedulers" in fields:
        fields["schedulers"] = tuple(fields["schedulers"])
    if "examples" in fields:
        fields["examples"] = tuple(_read_example(entry.get("id"), one) for one in fields["examples"])
    if "path" in fields:
        fields["path"] = base / fields["path"]
    if "attention" in fields:
        fields["attention"] = _read_attention(fields["id"], fields["attention"])
    return fields


def read_weights(fields: dict[str, Any], models_dir: Path, model: Model | None = None) -> dict[str, Any]:
    """Turns what an entry says of its weights into the fields of a model; files are below `models_dir`.

    Its scheduler's changes come on top of those of the `model` that it changes. Raises ModelError for a file that is
    not there.
    """
    read = dict(fields)
    for name in ("file", "file_2", "vae"):
        if name in read:
            read[name] = place = models_dir / read[name]
            if not (place.is_file() or (name == "vae" and place.is_dir())):
                raise ModelError(
                    say("{path} is not there.", path=place),
                    advice=say("Write {name} as a path from the folder models/, or a whole path.", name=name),
                )
    changes = dict(model.scheduler_changes) if model is not None else {}
    if "prediction_type" in read:
        changes["prediction_type"] = read.pop("prediction_type")
    if "zero_terminal_snr" in read:
        has_zero_snr = read.pop("zero_terminal_snr")
        changes["rescale_betas_zero_snr"] = has_zero_snr
        if has_zero_snr:
            changes["timestep_spacing"] = "trailing"
        else:
            changes.pop("timestep_spacing", None)
    return read | ({"scheduler_changes": changes} if changes else {})


def _read_example(model_id: Any, written: Any) -> Example:
    """Reads a prompt alone, or a table of a prompt and the seed of its picture; raises ModelError for anything else."""
    fields = {"prompt": written} if isinstance(written, str) else written
    match fields:
        case {"prompt": str(prompt), **rest} if prompt.strip() and rest.keys() <= {"seed"}:
            seed = rest.get("seed")
            if seed is None or (type(seed) is int and seed >= 0):
                return Example(prompt=prompt, seed=seed)
    raise ModelError(
        say("{model}: {value} is not an example.", model=model_id, value=repr(written)),
        advice=say('Write "A red boat", or { prompt = "A red boat", seed = 7 }.'),
    )


def _read_attention(model_id: str, options: Any) -> AttentionOptions:
    advice = say("Write such as { smooths_keys = true, bounds_logits = true, window = 4096 }; each may be left out.")
    if not isinstance(options, dict):
        raise ModelError(
            say("{model}: attention is a table, not {value}.", model=model_id, value=repr(options)), advice=advice
        )
    kinds = {"smooths_keys": bool, "bounds_logits": bool, "window": int}
    for name, value in cast(dict[str, Any], options).items():
        if name not in kinds:
            raise ModelError(
                say("{model}: there is no attention option {name}.", model=model_id, name=name), advice=advice
            )
        if type(value) is not kinds[name]:
            raise ModelError(
                say("{model}: {name} cannot be {value}.", model=model_id, name=name, value=repr(value)), advice=advice
            )
    return AttentionOptions(**cast(dict[str, Any], options))


def change(model: Model, fields: Mapping[str, Any]) -> Model:
    """Returns a model with an entry's changes: its `shapes` come on top, and other fields replace the model's own."""
    if fixed := sorted(_IDENTITY & fields.keys()):
        raise ModelError(
            say("{model} is there already: its {fields} cannot be changed.", model=model.id, fields=", ".join(fixed)),
            advice=say("Give the entry an id of its own."),
        )
    changes = read_fields({"default_shape": str(model.default_shape), **fields})
    for shape in changes.get("shapes", ()):
        check_size(shape, model.id, like=model.shapes)
    changes["shapes"] = tuple(dict.fromkeys((*model.shapes, *changes.get("shapes", ()))))
    return replace(model, **changes)


def check_size(shape: Shape, model_id: str, *, like: Collection[Shape]) -> None:
    """Raises ModelError for sides that are no multiple of what those of `like` are multiples of: 32, or else 16.

    Autoencoders shrink by 8 or 16 in each direction, and a patch or a UNet's halvings take 2 or 4 of what is left.
    """
    sides = [side for known in like for side in (known.width, known.height)]
    multiple = 32 if all(side % 32 == 0 for side in sides) else 16
    if shape.width % multiple or shape.height % multiple or not (shape.width and shape.height):
        raise ModelError(
            say(
                "{model} cannot make {shape}: its sides are multiples of {count}.",
                model=model_id,
                shape=shape,
                count=multiple,
            ),
            advice=say("Correct the size in models.toml."),
        )


def check_limits(model: Model) -> None:
    """Raises ModelError for a number of a user's model with which nothing would run; NaN is out of every range."""
    ranges = {**LIMITS, "steps": (1, model.max_steps), "guidance_scale": (0, model.max_guidance_scale)}
    values = [(name, getattr(model, name)) for name in ranges]
    values += [("flow_shift", shift) for shift in model.flow_shifts.values()]
    for name, value in values:
        low, high = ranges[name]
        if value is not None and not low <= value <= high:
            problem = say("{value} is out of range; allowed: {low} to {high}", value=value, low=low, high=high)
            raise ModelError(say("{name}: {problem}.", name=name, problem=problem), advice=_MANUAL)
