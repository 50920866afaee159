"""Everything about a training that is known before a weight is read: its data, sizes, batches, and what it will take.

All problems are told at once, by name. Not here: settings by themselves (settings.py), and with a model (refusals.py).
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax

from pipelines.errors import ModelError, RecipeError
from pipelines.families.trainable import Learner
from pipelines.loras.files import LoraFile
from pipelines.messages import Message, english, join, say, say_count
from pipelines.models.catalog import Model, Shape
from pipelines.models.model import FULL
from pipelines.registry import find_architecture
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.weights.components import read_json
from pipelines.training.batch_size import choose_batch
from pipelines.training.configs import find_known_configs
from pipelines.training.data.batches import Schedule, hold_out
from pipelines.training.data.buckets import Bucketing, choose_buckets, choose_square, cut_into_pieces, join_buckets
from pipelines.training.data.cuts import Bucket
from pipelines.training.data.examples import Example, Found, list_names
from pipelines.training.data.lengths import list_too_long
from pipelines.training.data.prompts import count_prior, list_prior_prompts
from pipelines.training.data.rows import CaptionRules, Data
from pipelines.training.data.sources import read_examples
from pipelines.training.engine.first_values import check_first_values
from pipelines.training.epochs import Epoch, choose_steps, count_epoch
from pipelines.training.first_lora import find_first_lora
from pipelines.training.refusals import check_folders, check_name, check_output, check_samples, find_strange
from pipelines.training.results.report import check_report
from pipelines.training.settings import TrainingSettings
from pipelines.training.sizes import find_multiple, takes_buckets

CROPS = 4
"""Places at which a picture may be cut at random, each of which is encoded once."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A training that can begin: `notes` say what was guessed or left out of its data.

    A batch is shared out among so many `devices`, or groups of them that compute the same rows together.
    """

    model: Model
    name: str
    data: Data
    held: Data | None
    captions: CaptionRules
    prior_prompts: tuple[str, ...]
    first_lora: LoraFile | None
    epoch: Epoch
    steps: int
    batch_size: int
    devices: int
    notes: tuple[Message, ...]

    @property
    def examples(self) -> Sequence[Example]:
        return self.data.examples

    @property
    def schedule(self) -> Schedule:
        return self.data.schedule

    @property
    def fingerprint(self) -> str:
        """Returns a hash of the pictures and captions, by which a state knows its data."""
        found = hashlib.sha256()
        for example in self.examples:
            found.update(f"{example.content} {example.captions!r} {example.repeats};".encode())
        return found.hexdigest()[:20]

    @property
    def prior_fingerprint(self) -> str:
        """Returns a hash of which examples are prior ones."""
        return hashlib.sha256(repr([example.is_prior for example in self.examples]).encode()).hexdigest()[:20]

    @property
    def buckets(self) -> dict[str, int]:
        """Returns how many pictures each size has, the most first."""
        counts = Counter(name_bucket(cut.bucket) for cut in self.data.cuts)
        return dict(counts.most_common())

    def describe(self) -> dict[str, Any]:
        """Returns the plan for JSON."""
        return {
            "model": self.model.id,
            "name": self.name,
            "pictures": len(self.examples),
            "buckets": self.buckets,
            "steps": self.steps,
            "steps_per_epoch": self.epoch.steps,
            "prior_pictures": self.epoch.prior,
            "batch_size": self.batch_size,
            "hosts": hosts.count(),
            "batch_size_per_device": self.batch_size // self.devices,
            "notes": [str(note) for note in self.notes],
        }

    def tell(self) -> list[Message]:
        """Lists the plan in sentences."""
        sizes = ", ".join(f"{shape} ({count})" for shape, count in self.buckets.items())
        return [
            _count(self.examples, sizes),
            *self.epoch.tell(self.steps, batch=self.batch_size),
            *self._tell_shares(),
            *self.notes,
        ]

    def _tell_shares(self) -> list[Message]:
        """Says how many pictures each host and each device has of a step, where there are several."""
        shares = {"rows": self.batch_size // self.devices, "devices": self.devices}
        if hosts.count() > 1 and not self.devices % hosts.count():
            rows = self.batch_size // hosts.count()
            return [
                say("each of {hosts} hosts has {own} of them a step, and each of {devices} devices {rows}",
                    hosts=hosts.count(), own=rows, **shares)
            ]  # fmt: skip
        return [say("each of {devices} devices has {rows} of them a step", **shares)] if self.devices > 1 else []


def _count(examples: Sequence[Example], sizes: str) -> Message:
    if any(example.fps for example in examples):
        return say("Clips and pictures: {count} in {sizes}", count=len(examples), sizes=sizes)
    return say_count("{count} picture in {sizes}", "{count} pictures in {sizes}", count=len(examples), sizes=sizes)


def name_bucket(bucket: Bucket) -> str:
    """Returns a size as people write it."""
    return str(Shape(width=bucket.width, height=bucket.height, frames=bucket.frames))


def check_training(settings: TrainingSettings, model: Model, learner: Learner, *, name: str | None) -> Checked:
    """Reads the data and decides what will be done; raises RecipeError with everything that is wrong."""
    check_report(settings.report_to)
    _check_start(model)
    devices = build_mesh(settings.mesh or f"dp={jax.device_count()}").shape["dp"]
    found = read_examples(
        settings.data,
        caption=settings.caption,
        trigger=settings.trigger,
        image_column=settings.image_column,
        caption_column=settings.caption_column,
        videos=model.is_video,
    )
    if settings.whole_clips and model.is_video:
        found = _cut_clips(settings, model, found)
    chosen = choose_name(settings) if name is None else name
    problems = {
        **check_name(chosen),
        **check_folders(settings),
        **check_output(settings, model),
        **find_strange(settings, model, learner),
        **check_samples(settings, model),
        **_check_square(settings, model, learner),
    }
    lora = None
    try:
        lora = check_first_lora(settings, model, learner)
    except RecipeError as error:
        problems |= error.fields
    if found.problems and "data" not in problems:
        problems["data"] = join(found.problems)
    counted = [one for one in found.examples if not (one.is_prior and settings.preserve)]
    if not counted and "data" not in problems:
        problems["data"] = say(
            "all pictures are marked prior, and with preserve such are not learnt; name a folder of some to learn"
        )
    prompts: tuple[str, ...] = ()
    try:
        prompts = list_prior_prompts(settings, model)
    except RecipeError as error:
        problems |= error.fields
    made = count_prior(found.examples, prompts)  # which are data, too, once they are there
    batch = choose_batch(settings, len(counted) + (0 if settings.preserve else made), devices)
    if batch % (devices * settings.accumulate):
        problems["global_batch_size"] = say(
            "{batch} is no multiple of {devices} devices times {parts} parts",
            batch=batch,
            devices=devices,
            parts=settings.accumulate,
        )
    if problems:
        raise RecipeError(problems)
    learnt, kept, held_notes = _hold_out(settings, found, model)
    data, notes = _schedule(settings, model, learner, learnt, batch=batch)
    held = _schedule(settings, model, learner, kept, batch=batch)[0] if kept else None
    epoch = count_epoch(
        data, lambda examples: _schedule(settings, model, learner, examples, batch=batch)[0].schedule, model,
        made=count_prior(learnt, prompts), is_kept=settings.preserve > 0,
    )  # fmt: skip
    start = model.choose_start(revision=settings.revision, variant=settings.variant)
    too_long = list_too_long(learnt, start, trigger=settings.trigger or "", write_prompt=learner.write_prompt)
    return Checked(
        model=model,
        name=chosen,
        data=data,
        held=held,
        captions=CaptionRules(
            seed=settings.seed,
            trigger=settings.trigger or "",
            shuffle_tags=settings.shuffle_tags,
            keep_tags=settings.keep_tags,
            dropout=settings.caption_dropout,
            preserve=settings.preserve,
        ),
        prior_prompts=prompts,
        first_lora=lora,
        epoch=epoch,
        steps=choose_steps(settings, epoch.steps),
        batch_size=batch,
        devices=devices,
        notes=(
            *found.notes,
            *notes,
            *held_notes,
            *too_long,
            *epoch.list_notes(),
            *tell_start(model, settings.kind),
            *_tell_settings(settings),
        ),
    )


def check_first_lora(settings: TrainingSettings, model: Model, learner: Learner) -> LoraFile | None:
    """Returns the LoRA that a training starts from, None for none; raises RecipeError for one that cannot learn on.

    It is looked at layer by layer where the model's configs are here already.
    """
    lora, start = find_first_lora(settings, model), model.choose_start()
    folder = find_known_configs(start)
    if lora is not None and folder is not None:
        architecture: Any = find_architecture(model)
        check_first_values(lora, settings, learner, model=start, folder=folder, spell=architecture.spell)
    return lora


def _check_start(model: Model) -> None:
    """Raises ModelError for rounded weights."""
    if model.weights != FULL:
        raise ModelError(
            say("{model} has its weights in {weights} here, and nothing can be learnt from rounded ones.",
                model=model.title, weights=model.weights),
            advice=say("Train without --weights {weights}, on chips with room for them in full; "
                       "what is learnt there can be used with it.", weights=model.weights),
        )  # fmt: skip


def _tell_settings(settings: TrainingSettings) -> list[Message]:
    """Says what of the settings is easily taken for something else."""
    notes: list[Message] = []
    if settings.lora and settings.prediction_type is not None:
        notes.append(
            say("no LoRA file can say that its model predicts {kind}: use it with a model that does",
                kind=settings.prediction_type)
        )  # fmt: skip
    if settings.schedule == "cosine_with_restarts" and settings.lr_num_cycles == 1:
        notes.append(
            say("cosine_with_restarts never restarts in its one cycle, and is cosine: lr_num_cycles asks for more")
        )
    return notes


def tell_start(model: Model, kind: Literal["lora", "full"] = "lora") -> list[Message]:
    """Says where a distilled model's training starts: its own weights learn poorly, for which its base is published."""
    start = model.choose_start()
    if start.repo != model.repo and kind == "full":
        return [
            english(
                f"{model.title} is distilled: all weights of {start.repo} learn, and the result is used as that model "
                f"is, with more steps than {model.title}"
            )
        ]
    if start.repo != model.repo:
        return [
            say("{model} is distilled: it learns from {repo}, and is used with what was learnt there",
                model=model.title, repo=start.repo)
        ]  # fmt: skip
    index = model.path / "model_index.json" if model.path is not None else None
    if index is not None and index.is_file() and read_json(index).get("is_distilled"):
        return [say("{model} is distilled, and learns poorly: train the base that it was made from", model=model.title)]
    return []


def choose_name(settings: TrainingSettings) -> str:
    """Returns a file name for the result: of the output folder, or of the data's."""
    source = settings.output.name if settings.output is not None else Path(settings.data[0].split(",")[0]).name
    plain = re.sub(r"[^\w.-]+", "-", source).strip("-.")
    return plain or "training"


def _hold_out(
    settings: TrainingSettings, found: Found, model: Model
) -> tuple[tuple[Example, ...], tuple[Example, ...], tuple[Message, ...]]:
    """Splits the examples into those that are learnt and those to validate with, and says what should be known of it.

    None are held back without a wish; raises RecipeError where none are left to learn.
    """
    text = settings.validate_with
    if text is None:
        return tuple(found.examples), (), ()
    if Path(text).exists():
        other = read_examples(
            (text,),
            caption=settings.caption,
            trigger=settings.trigger,
            image_column=settings.image_column,
            caption_column=settings.caption_column,
            videos=model.is_video,
        )
        if other.problems:
            raise RecipeError({"validate": join(other.problems)})
        learnt, kept = hold_out(found.examples, other.examples)
        return learnt, kept, (*_tell_folder(text, found.examples, learnt, kept), *other.notes)
    learnt, kept = hold_out(found.examples, float(text))
    if not kept:
        return learnt, kept, (say("all pictures are one and the same, so none is held back to validate with"),)
    return learnt, kept, (_tell_held(kept),)


def _tell_folder(
    folder: str, examples: Sequence[Example], learnt: Sequence[Example], kept: Sequence[Example]
) -> list[Message]:
    """Says how many of a folder validate, and which of the data are equal to one; raises RecipeError where all are."""
    if all(one.is_prior for one in learnt) and not all(one.is_prior for one in examples):
        problem = say(
            "all pictures of the data are in {folder}, too, and are held back to validate with, so none is left to "
            "learn; name a folder of others, or a share such as 0.1",
            folder=folder,
        )
        raise RecipeError({"validate": problem})
    left = {one.id for one in learnt}
    taken = [one for one in examples if one.id not in left]
    count = say_count(
        "{count} picture of {folder} validates", "{count} pictures of {folder} validate", count=len(kept), folder=folder
    )
    return [count, *([_tell_held(taken)] if taken else [])]


def _tell_held(held: Sequence[Example]) -> Message:
    """Names the pictures that are taken from those of the data."""
    return say_count(
        "{count} picture is held back to validate with, and is not learnt: {names}",
        "{count} pictures are held back to validate with, and are not learnt: {names}",
        count=len(held),
        names=list_names([example.id for example in held]),
    )


def _schedule(
    settings: TrainingSettings, model: Model, learner: Learner, examples: Sequence[Example], *, batch: int
) -> tuple[Data, tuple[Message, ...]]:
    cutting = _cut(settings, model, learner, examples)
    buckets = cutting.buckets.values()
    if settings.preserve:  # prior pictures are twins of those that are learnt (rows.py)
        buckets = [[number for number in members if not examples[number].is_prior] for members in buckets]
    schedule = Schedule(
        examples,
        list(buckets),
        batch=batch,
        seed=settings.seed,
        prior_weight=settings.prior_weight,
        flips=settings.random_flip,
        crops=0 if settings.center_crop or takes_buckets(settings, model) else CROPS,
    )
    return Data(examples=examples, cuts=cutting.cuts, schedule=schedule), cutting.notes


def _cut(settings: TrainingSettings, model: Model, learner: Learner, examples: Sequence[Example]) -> Bucketing:
    learnt = [example for example in examples if not example.is_prior]
    if settings.preserve and learnt and len(learnt) < len(examples):
        cutting = _cut(settings, model, learner, learnt)
        prior = [example for example in examples if example.is_prior]
        joined = join_buckets(prior, cutting.buckets, fps=float(model.fps or 0))
        own, others = iter(cutting.cuts), iter(joined.cuts)
        cuts = tuple(next(others if example.is_prior else own) for example in examples)
        return Bucketing(cuts=cuts, notes=(*cutting.notes, *joined.notes))
    shape = model.default_shape
    side = settings.resolution or round(math.sqrt(shape.width * shape.height))
    fps, shapes = float(model.fps or 0), list(model.shapes)
    if settings.frames is not None:
        shapes = [replace(one, frames=settings.frames) for one in shapes]
    if not takes_buckets(settings, model):
        return choose_square(examples, side, frames=_list_lengths(settings, model), fps=fps)
    multiple = find_multiple(model, learner)
    return choose_buckets(examples, shapes, multiple=multiple, area=side**2, fps=fps)


def _cut_clips(settings: TrainingSettings, model: Model, found: Found) -> Found:
    pieces, notes = cut_into_pieces(found.examples, _list_lengths(settings, model), fps=float(model.fps or 0))
    return replace(found, examples=pieces, notes=(*found.notes, *notes))


def _list_lengths(settings: TrainingSettings, model: Model) -> set[int]:
    """Returns how many frames clips may be learnt with."""
    return {settings.frames} if settings.frames is not None else {shape.frames for shape in model.shapes}


def _check_square(settings: TrainingSettings, model: Model, learner: Learner) -> dict[str, Message]:
    """Refuses a square of which a model of videos would have half a token."""
    if not model.is_video or settings.resolution is None or takes_buckets(settings, model):
        return {}
    multiple = find_multiple(model, learner)
    if settings.resolution % multiple == 0:
        return {}
    return {
        "resolution": say("{side} is no multiple of {multiple}", side=settings.resolution, multiple=multiple)
    }  # fmt: skip
