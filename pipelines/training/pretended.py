"""A training without weights or jax, for `--fake`: its loss falls, its samples take the pictures' colour, it can go on.

It keeps its state in the output folder and tells the same events as a real one (loop.py), so that the queue, the page
and restarts can be worked on and tested in seconds. Its LoRA file holds one tensor, by which lists know its family.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import LumeshError
from pipelines.families.fake.landscape import draw_landscape
from pipelines.files.foreign_video import measure_video, read_frames
from pipelines.files.outputs import save_outputs, suffix_of
from pipelines.files.whole import write_whole
from pipelines.messages import english
from pipelines.models.catalog import Catalog, Model
from pipelines.pictures.reading import open_picture
from pipelines.recipes.recipe import Lora, Recipe
from pipelines.recipes.resolving import resolve
from pipelines.training.data.prompts import list_prior_prompts
from pipelines.training.settings import TrainingSettings
from pipelines.training.stop import Stop

STEP_S = 0.01
SAVE_EVERY = 10  # steps
TINT = 0.6  # weight of the pictures' mean colour in the last samples
STATE = "state.json"


def train(
    settings: TrainingSettings,
    model: Model,
    *,
    name: str,
    output: Path,
    stop: Stop,
    on_event: Callable[[dict[str, Any]], None],
    step_s: float = STEP_S,
) -> tuple[Path, ...]:
    """Pretends to train; returns the LoRA's file, none when it was stopped before its end."""
    _pretend_prior(settings, model, output / "prior", stop=stop, on_event=on_event, step_s=step_s)
    if stop.is_asked:
        return ()
    colours = [_read_colour(file) for file in _list_pictures(settings, on_event)]
    rounds = 1 if model.guidance_scale_2 is None else 2  # experts learn one after the other
    for number in range(rounds):
        if rounds > 1:
            on_event({"event": "expert", "number": number, "count": rounds, "component": f"expert {number + 1}"})
        state = output / (STATE if number == 0 else f"{number}-{STATE}")
        if not _pretend_round(settings, model, state, colours, name=name, stop=stop, on_event=on_event, step_s=step_s):
            return ()
    file = output / f"{name}.safetensors"
    write_whole(file, _encode_lora(model, name))
    return (file,)


def _pretend_prior(
    settings: TrainingSettings,
    model: Model,
    folder: Path,
    *,
    stop: Stop,
    on_event: Callable[[dict[str, Any]], None],
    step_s: float,
) -> None:
    """Pretends that the model makes pictures of its own, as many as there are to learn, unless they are there."""
    prompts = list_prior_prompts(settings, model)
    pictures = sum(file.suffix != ".txt" for data in settings.data for file in Path(data).iterdir())
    files = [folder / f"{number:04d}.txt" for number in range(max(pictures, len(prompts)) if prompts else 0)]
    missing = [number for number, file in enumerate(files) if not file.exists()]
    for done, number in enumerate(missing):
        on_event({"event": "prior", "done": done, "total": len(missing)})
        if stop.is_asked:
            return
        time.sleep(step_s)
        write_whole(files[number], prompts[number % len(prompts)].encode())
    if missing:
        on_event({"event": "prior", "done": len(missing), "total": len(missing)})


def _pretend_round(
    settings: TrainingSettings,
    model: Model,
    state: Path,
    colours: Sequence[Any],
    *,
    name: str,
    stop: Stop,
    on_event: Callable[[dict[str, Any]], None],
    step_s: float,
) -> bool:
    """Pretends that one network learns; returns whether it came to its end."""
    output, steps = state.parent, settings.steps or 1
    first = _read_state(state)
    if first:
        on_event({"event": "resumed", "step": first})
    on_event({"event": "compiling", "shape": str(model.default_shape)})
    draw = np.random.default_rng(settings.seed)
    noise = draw.normal(0.0, 0.01, steps)
    done = first
    for done in range(first + 1, steps + 1):
        time.sleep(step_s)
        on_event(
            {
                "event": "step",
                "step": done,
                "steps": steps,
                "loss": 0.15 + 0.3 * math.exp(-4 * done / steps) + float(noise[done - 1]),
                "learning_rate": settings.rate * (1 - done / (steps + 1)),
                "skipped": 0,
            }
        )
        if stop.is_asked or done % SAVE_EVERY == 0 or done == steps:
            write_whole(state, json.dumps({"step": done}).encode())
            on_event({"event": "saved", "step": done})
        if stop.is_asked:
            break
        if settings.sample and done % (settings.sample_every or steps) == 0:
            tint = TINT * done / steps * np.mean(colours, axis=0), TINT * done / steps
            for number, prompt in enumerate(settings.sample):
                file = output / "samples" / f"{name}-{done:06d}-{number}{suffix_of(model)}"
                _save_sample(settings, model, prompt, file, tint=tint)
                on_event({"event": "sample", "step": done, "file": str(file)})
    return done >= steps


def _list_pictures(settings: TrainingSettings, on_event: Callable[[dict[str, Any]], None]) -> list[Path]:
    """Lists the pictures of the data, each of which must have a caption in a file of its name."""
    files = [file for folder in settings.data for file in sorted(Path(folder).iterdir()) if file.suffix != ".txt"]
    for done, file in enumerate(files, start=1):
        if not file.with_suffix(".txt").read_text("utf-8").strip():
            raise LumeshError(english(f"{file.name} has no caption."))
        on_event({"event": "preparing", "done": done, "total": len(files)})
    if not files:
        raise LumeshError(english(f"There are no pictures in {', '.join(settings.data)}."))
    return files


def _read_colour(file: Path) -> np.ndarray:
    """Reads a picture's mean colour, or that of a clip's first frame."""
    if file.suffix != ".mp4":
        return np.asarray(open_picture(file), np.float32).mean((0, 1)) / 255
    size = measure_video(file)
    [first] = read_frames(file, width=size.width, height=size.height, fps=size.fps, frames=1)
    return np.asarray(first, np.float32).mean((0, 1)) / 255


def _read_state(state: Path) -> int:
    try:
        return int(json.loads(state.read_text("utf-8"))["step"])
    except FileNotFoundError:
        return 0


def _save_sample(
    settings: TrainingSettings, model: Model, prompt: str, file: Path, *, tint: tuple[np.ndarray, float]
) -> None:
    recipe = resolve(Recipe(model=model.id, prompt=prompt, seed=settings.seed), Catalog(models=(model,)))
    recipe = recipe.model_copy(update={"loras": (Lora(ref=file.stem.rpartition("-")[0]),)})
    shape = recipe.parsed_shape
    colour, share = tint
    picture = draw_landscape(prompt, seed=settings.seed, width=shape.width, height=shape.height)
    pixels = (np.clip((1 - share) * picture + colour, 0, 1) * 255).round().astype(np.uint8)
    one = pixels if shape.frames == 1 else np.repeat(pixels[None], shape.frames, axis=0)
    save_outputs(one[None], recipe, file)


def _encode_lora(model: Model, name: str) -> bytes:
    """Encodes a file with one tensor of one number."""
    header = {
        "__metadata__": {"modelspec.title": name, "ss_output_name": name, "ss_base_model": model.id},
        model.traits.loras.example: {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)
