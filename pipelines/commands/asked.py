"""What the options of a command come to: sizes, models within limits, and a resolved recipe with what is said of it."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from pipelines.commands.notes import Notes
from pipelines.errors import ModelError, RecipeError
from pipelines.loras.files import SUFFIX, LoraFile, find_lora_file, inspect_lora, name_given
from pipelines.loras.settings import ADAPTER_MODEL
from pipelines.messages import Message, english, tell
from pipelines.models.catalog import VIDEO_STRIDE, Catalog, Model, Shape
from pipelines.recipes import sigmas
from pipelines.recipes.recipe import Recipe, read_recipe
from pipelines.recipes.resolving import list_idle, resolve, take_lora_tags


@dataclass(frozen=True, kw_only=True)
class Size:
    """A size as the command line gives it: `--shape`, or `--width`, `--height` and `--frames`, or nothing."""

    shape: str | None = None
    width: int | None = None
    height: int | None = None
    frames: int | None = None

    def choose(self, catalog: Catalog, model_id: str, *, earlier: str | None = None) -> str | None:
        """Returns the shape as text, None if nothing is given; raises RecipeError for what contradicts itself.

        What is left out of width, height and frames is that of the `earlier` stage, or else the model's default.
        """
        if self.width is self.height is self.frames is None:
            return self.shape
        try:
            whole = Shape.parse(self.shape or earlier or str(catalog.get(model_id).default_shape))
        except (ValueError, ModelError):  # `resolve` says what is wrong with it
            return self.shape
        given = {"width": self.width, "height": self.height, "frames": self.frames}
        size = replace(whole, **{name: value for name, value in given.items() if value is not None})
        if size.width < 1 or size.height < 1:
            raise RecipeError({"shape": english(f"{size.width}x{size.height} is not a size in pixels")})
        if size.frames < 1 or size.frames % VIDEO_STRIDE != 1:
            raise RecipeError(
                {"shape": english(f"{size.frames} frames: a video has 4n+1 of them, such as 17, 33 or 81")}
            )
        if self.shape is not None and size != whole:
            raise RecipeError(
                {"shape": english(f"--shape {self.shape} contradicts --width, --height and --frames, which say {size}")}
            )
        return str(size)


def limit_text(model: Model, max_sequence_length: int | None) -> Model:
    """Returns the model that reads so many tokens, and says so if it cannot choose; None keeps its own number."""
    if max_sequence_length is None:
        return model
    if model.traits.has_fixed_text_length:
        typer.echo(f"lumesh: --max_sequence_length has no effect: {model.id} reads what its encoders take.", err=True)
        return model
    return replace(model, text_length=max_sequence_length)


def choose_weights(model: Model, weights: str | None) -> Model:
    """Returns the model whose weights lie on the devices in this way, one of WEIGHTS; None leaves it its own."""
    return model if weights is None else replace(model, weights=weights)


def limit_attention(model: Model, *, window_size: int | None, smooths_keys: bool) -> Model:
    """Returns the model with other attention options, and says so if it has none; None and False keep its own."""
    if window_size is None and not smooths_keys:
        return model
    if not model.traits.takes_attention_options:
        typer.echo(f"lumesh: --window_size and --use_k_smooth have no effect: {model.id} is no Wan.", err=True)
        return model
    window = window_size if window_size is not None else model.attention.window
    options = replace(model.attention, smooths_keys=smooths_keys or model.attention.smooths_keys, window=window)
    return replace(model, attention=options)


def tell_changes(before: Model, after: Model) -> None:
    """Says which changes of the command line a file's recipe does not carry."""
    flags = [f"--max_sequence_length {after.text_length}"] if after.text_length != before.text_length else []
    if after.attention.window != before.attention.window:
        flags.append(f"--window_size {after.attention.window}")
    if after.attention.smooths_keys != before.attention.smooths_keys:
        flags.append("--use_k_smooth")
    if after.weights != before.weights:
        flags.append(f"--weights {after.weights}")
    if flags:
        words = " ".join(flags)
        typer.echo(f"lumesh: the recipe in the file does not carry {words}: give it again for the same.", err=True)


def read_sigmas(text: str | None) -> list[float] | None:
    """Parses the noise levels of `--sigmas`; raises RecipeError."""
    try:
        return None if text is None else list(sigmas.read_sigmas(text))
    except ValueError as error:
        raise RecipeError({"sigmas": tell(error)}) from error


def read_loras(given: Sequence[str] | None) -> list[dict[str, Any]] | None:
    """Parses `REF[:SCALE][@EXPERT]` into a recipe's LoRAs."""
    if not given:
        return None
    loras: list[dict[str, Any]] = []
    for text in given:
        expert: dict[str, str] = {}
        chosen = re.fullmatch(r"(.+)@(high|low|both)", text, re.IGNORECASE)
        if chosen is not None:
            text, expert = chosen[1], {"expert": chosen[2].lower()}
        match = re.fullmatch(r"(.+):([-+.\w]+)", text)
        ref, scale = text, 1.0
        if match is not None:
            with contextlib.suppress(ValueError):
                ref, scale = match[1], float(match[2])
        loras.append({"ref": name_given(ref), "scale": scale, **expert})
    return loras


def make_recipe(catalog: Catalog, fields: dict[str, Any]) -> Recipe:
    """Makes a resolved recipe from the given options, and says what LoRA tags in its prompt do; raises RecipeError."""
    recipe, notes = make_recipe_with_notes(catalog, fields)
    Notes(is_silent=False).add(notes)
    return recipe


def make_recipe_with_notes(catalog: Catalog, fields: dict[str, Any]) -> tuple[Recipe, list[Message]]:
    """Makes a resolved recipe, and sentences on LoRA tags in its prompt and on what has no effect; raises RecipeError.

    Only here may LoRAs be files anywhere: whoever types a path on the command line can read the file anyway.
    """
    recipe = read_recipe({name: value for name, value in fields.items() if value is not None})
    refs = [lora.ref for lora in recipe.loras if Path(lora.ref).is_absolute()]
    catalog = replace(catalog, own_loras=tuple(map(_read_own_lora, refs)))
    recipe, notes = take_lora_tags(recipe, catalog)
    resolved = resolve(recipe, catalog)
    return resolved, [*notes, *list_idle(recipe, resolved, catalog.get(resolved.model))]


def _read_own_lora(ref: str) -> LoraFile:
    file = find_lora_file(ref, None)
    if file is None:
        missing = f"{ref}/{ADAPTER_MODEL}" if Path(ref).is_dir() else f"{ref}{SUFFIX}"
        raise RecipeError({"loras": english(f"{missing} is not there")})
    lora = inspect_lora(file, ref=ref)
    if lora.problem:
        raise RecipeError({"loras": english(f"{file} cannot be used: {lora.problem}")})
    return lora
