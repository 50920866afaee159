"""What a training learns from, made before its first step: prior pictures, and rows that are encoded.

Not here: which examples there are (checks.py), how a row is encoded (data/rows.py).
"""

import functools
from contextlib import suppress
from dataclasses import replace

import jax.numpy as jnp

from pipelines.models.catalog import Shape
from pipelines.runtime.devices.mesh import build_own_mesh
from pipelines.runtime.weights.components import choose_dtype, read_json
from pipelines.training.checks import Checked, check_training
from pipelines.training.data.cache import Cache
from pipelines.training.data.encoder import PictureReader, TextReader
from pipelines.training.data.fingerprints import fingerprint
from pipelines.training.data.prior import FOLDER, PriorMaker
from pipelines.training.data.prompts import count_prior
from pipelines.training.data.rows import RowSource
from pipelines.training.engine import placement
from pipelines.training.engine.denoiser import Origin
from pipelines.training.engine.loop import OnEvent, Stop
from pipelines.training.place import Place
from pipelines.training.settings import TrainingSettings


def add_prior(
    settings: TrainingSettings, checked: Checked, place: Place, origin: Origin, *, stop: Stop, on_event: OnEvent
) -> Checked | None:
    """Makes as many prior pictures as others, or prompts if there are more, and reads the data anew with them.

    Returns None after a stop: some of the pictures are no data to go on with.
    They have the model's default shape, or where they keep what it knows (`preserve`) those that are learnt.
    """
    folder = place.output / FOLDER
    prompts = checked.prior_prompts
    count = count_prior(checked.examples, prompts)
    learnt = [Shape(**cut.bucket._asdict()) for cut in checked.data.cuts]
    shapes = [shape for shape in dict.fromkeys(learnt) if shape in checked.model.shapes and settings.preserve]
    maker = PriorMaker(checked.model, place, on_progress=origin.on_progress)
    shapes = shapes or [checked.model.default_shape]
    if not maker.make(prompts, count, shapes=shapes, seed=settings.seed, stop=stop, on_event=on_event):
        return None
    there = {"data": (*settings.data, f"{folder},prior"), "prior_prompt": (), "prior_prompts": None}
    with_prior = settings.model_copy(update={**there, "global_batch_size": checked.batch_size})
    return check_training(with_prior, checked.model, origin.learner, name=checked.name)


class _StoppedError(Exception):
    """Raised between two rows, all of which so far are kept."""


def prepare_rows(
    settings: TrainingSettings, checked: Checked, place: Place, origin: Origin, *, stop: Stop, on_event: OnEvent
) -> tuple[RowSource, RowSource | None] | None:
    """Encodes everything that is learnt, and what is held back to validate with, None without any.

    Returns None after a stop, on all hosts.
    """
    components = read_json(origin.folder / "model_index.json")
    texts = [name for name in components if name.startswith(("text_encoder", "tokenizer"))]
    describe = functools.partial(
        fingerprint,
        origin.folder,
        own_files=origin.model.own_files,
        dtype=jnp.dtype(choose_dtype(origin.mesh)).name,
        variant=origin.model.variant,
    )
    source = functools.partial(
        RowSource,
        cache=None if settings.no_cache else Cache(place.cache),
        learner=origin.learner,
        text_print=describe(texts),
        picture_print=describe(["vae"]),
        own=functools.partial(placement.find_own_rows, origin.mesh),
    )
    rows = source(data=checked.data, captions=checked.captions)
    held = None
    if checked.held is not None:
        held = source(
            data=checked.held, captions=replace(checked.captions, dropout=0.0, shuffle_tags=False, preserve=0.0)
        )
    own_mesh = build_own_mesh(origin.mesh)  # each host encodes by itself, at its own pace
    readers = (
        lambda: TextReader(
            origin.model, origin.learner, mesh=own_mesh, cache_dir=place.cache_dir, on_progress=origin.on_progress
        ),
        lambda: PictureReader(
            origin.model,
            origin.learner,
            origin.folder,
            mesh=own_mesh,
            on_progress=origin.on_progress,
            stored=origin.files.get("vae"),
        ),
    )

    def count(done: int, total: int) -> None:
        on_event({"event": "preparing", "done": done, "total": total})
        if stop.is_asked:
            raise _StoppedError

    with suppress(_StoppedError):
        rows.prepare(checked.steps, *readers, count)
        if held is not None:
            held.prepare(held.schedule.steps_per_epoch, *readers, count)
    return None if stop.ask_all("stop before the steps") else (rows, held)
