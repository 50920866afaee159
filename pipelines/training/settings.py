"""What may be asked of a training, as one type: the command line, a .toml file and the studio fill the same fields.

Names are those of diffusers' training scripts where they have one. Importable without jax.
Not here: a family's own defaults (families/*/training.py), what the data is (data/).
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.errors import RecipeError
from pipelines.field_errors import word_first
from pipelines.messages import Message, english, say

Optimizer = Literal["adamw", "adafactor", "lion", "muon", "prodigy", "schedule_free"]
LearningRateSchedule = Literal[
    "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial"
]
Sigmas = Literal["logit_normal", "uniform", "mode", "shifted"]
Remat = Literal["auto", "none", "layers", "narrow", "attention", "full"]
REMATS_BY_SIZE: tuple[Remat, ...] = ("layers", "narrow", "attention", "full")
"""What `auto` tries on an accelerator until the step fits: the quickest first, which is not to keep everything."""
Precision = Literal["no", "bf16"]
SavePrecision = Literal["bf16", "fp16", "fp32"]
LoraFormat = Literal["all", "diffusers", "kohya"]
Expert = Literal["high", "low", "both"]
DEFAULT_STEPS = {"lora": 800, "full": 2000}
POLYNOMIAL_END = 1e-7
"""The learning rate at which diffusers' polynomial schedule ends."""
DEFAULT_RATE = {"lora": 1e-4, "full": 1e-5}


class TrainingSettings(BaseModel):
    """A training. None means the model's or the kind of training's own default; sizes are in pixels."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str = Field(default="", description="A model of the catalogue, its hub repository, or a folder.")
    data: tuple[str, ...] = Field(default=(), description="Folder or file of pictures: PATH[,repeats=3][,prior].")
    output: Path | None = Field(default=None, description="Folder for the result and for going on after a stop.")
    lora: bool = Field(default=False, description="Trains a LoRA.")
    full: bool = Field(default=False, description="Trains all of the denoiser's weights.")

    rank: int = Field(default=16, ge=1, le=1024, description="Of a LoRA: the width of its matrices.")
    alpha: float | None = Field(default=None, gt=0, description="Of a LoRA: counts alpha / rank; the rank if left out.")
    start_from: str | None = Field(
        default=None, description="A LoRA that learns on: a file, or one of the data directory's by its name."
    )
    targets: str | None = Field(default=None, description="Regular expression of layers; all linear ones if left out.")
    convolutions: bool = Field(default=False, description="Lets a LoRA change convolutions, too.")
    lora_format: LoraFormat = Field(
        default="all", description="Names in the LoRA file: what all programs read, or diffusers' or kohya's own."
    )
    expert: Expert | None = Field(default=None, description="Of a model with two experts: the one that learns.")

    caption: str | None = Field(default=None, description="For pictures that have none.")
    trigger: str | None = Field(default=None, description="Words put before every caption that lacks them.")
    preserve: float = Field(
        default=0.0, ge=0, le=100, description="How much it counts that without the trigger all stays as it was."
    )
    caption_dropout: float = Field(default=0.1, ge=0, le=1, description="Share of captions left empty.")
    shuffle_tags: bool = Field(default=False, description="Shuffles the parts of a caption between commas.")
    keep_tags: int = Field(default=1, ge=0, description="Parts at the front that shuffling leaves there.")
    image_column: str = Field(default="image", description="Of a dataset.")
    caption_column: str = Field(default="text", description="Of a dataset.")

    resolution: int | None = Field(default=None, ge=64, le=4096, description="Side of the square of equal area.")
    buckets: bool | None = Field(default=None, description="Several proportions, or one square.")
    center_crop: bool = Field(default=False, description="Cuts in the middle instead of at random.")
    random_flip: bool = Field(default=False, description="Mirrors half of the pictures.")
    frames: int | None = Field(
        default=None, ge=1, le=1025, description="Of a video: 4n + 1; the model's own if left out."
    )
    whole_clips: bool = Field(default=False, description="Learns all of long clips, in pieces, not their beginnings.")

    steps: int | None = Field(default=None, ge=1, le=10_000_000, description="How many updates of the weights.")
    epochs: float | None = Field(
        default=None, gt=0, description="Instead of steps: how often each picture is seen, prior ones, too."
    )
    global_batch_size: int | None = Field(default=None, ge=1, le=65_536, description="Pictures a step, on all hosts.")
    accumulate: int = Field(default=1, ge=1, le=1024, description="Parts of a batch that are computed one by one.")

    learning_rate: float | None = Field(default=None, gt=0, le=100)
    lr_scheduler: LearningRateSchedule = "cosine"
    lr_warmup_steps: int | None = Field(default=None, ge=0)
    lr_num_cycles: int = Field(
        default=1, ge=1, le=10_000, description="Of cosine_with_restarts: how often it begins anew; 1 is cosine."
    )
    optimizer: Optimizer = "adamw"
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    adam_weight_decay: float = Field(default=1e-2, ge=0)
    adam_epsilon: float = Field(default=1e-8, gt=0)
    max_grad_norm: float = Field(default=1.0, gt=0, description="Longer gradients are shortened to this.")
    ema: float = Field(default=0.0, ge=0, lt=1, description="Decay of the average that is saved; 0 for none.")

    snr_gamma: float | None = Field(default=None, ge=0, description="Min-SNR weighting; 0 for none.")
    noise_offset: float = Field(default=0.0, ge=0)
    prediction_type: Literal["epsilon", "v_prediction", "sample"] | None = None
    sigmas: Sigmas | None = Field(default=None, description="How the noise of flow models is spread.")
    shift: float | None = Field(default=None, gt=0, description="Moves the noise of flow models upwards.")
    prior_prompt: tuple[str, ...] = Field(
        default=(), description="Prompt of pictures that the model makes first, so as not to forget them."
    )
    prior_prompts: str | None = Field(
        default=None, description="File of such prompts, one a line; or auto: the model's own examples."
    )
    prior_weight: float = Field(default=1.0, ge=0, description="How much pictures marked prior count.")

    validate_with: str | None = Field(default=None, description="Share of the pictures, or a folder, held back.")
    validate_every: int | None = Field(default=None, ge=1)
    sample: tuple[str, ...] = Field(default=(), description="Prompt of a picture to make while training.")
    sample_every: int | None = Field(default=None, ge=1)
    save_every_minutes: float = Field(default=10.0, gt=0)
    keep: int = Field(default=2, ge=1, description="States that are kept to go on from.")
    max_minutes: float | None = Field(default=None, gt=0, description="Stops after this long; the next run goes on.")

    save_precision: SavePrecision = Field(default="bf16", description="What the weights that learnt are written in.")
    push_to_hub: bool = Field(default=False, description="Uploads the result to the hub.")
    hub_model_id: str | None = Field(default=None, description="Repository of the upload; the name if left out.")
    hub_token: str | None = Field(default=None, description="For the upload; HF_TOKEN if left out.", repr=False)
    profile: Path | None = Field(default=None, description="Folder for a trace of some steps.")
    revision: str | None = Field(default=None, description="Of a hub repository; the catalogue's if left out.")
    non_ema_revision: str | None = Field(
        default=None, description="Of a hub repository, for the denoiser alone: weights that are no average."
    )
    variant: str | None = Field(default=None, description="Of the weights' files, such as fp16.")

    mixed_precision: Precision | None = Field(default=None, description="What is computed in; weights stay fp32.")
    remat: Remat = Field(default="auto", description="What is computed twice to save memory.")
    strict: bool = Field(
        default=False, description="Fails where a step does not fit, in place of computing its batch in more parts."
    )
    mesh: str | None = Field(default=None, description="Devices per axis, such as dp=8.")
    seed: int = Field(default=0, ge=0, lt=2**31)
    no_cache: bool = Field(default=False, description="Keeps embeddings and latents in memory alone.")
    report_to: Literal["tensorboard", "trackio", "wandb"] | None = None

    @property
    def kind(self) -> Literal["lora", "full"]:
        return "lora" if self.lora else "full"

    @property
    def schedule(self) -> LearningRateSchedule:
        """Returns the schedule of learning rates; an optimizer that needs none has a constant one after its warm-up."""
        is_free = self.optimizer == "schedule_free"
        return "constant_with_warmup" if is_free and "lr_scheduler" not in self.model_fields_set else self.lr_scheduler

    @property
    def rate(self) -> float:
        """Returns the peak learning rate; Prodigy finds its own, which this multiplies."""
        if self.learning_rate is None and self.optimizer == "prodigy":
            return 1.0
        return DEFAULT_RATE[self.kind] if self.learning_rate is None else self.learning_rate


EITHER = (("lora", "full"), ("steps", "epochs"))
"""Settings of which one takes the other's place."""
FLAGS = {"validate_with": "validate"}
"""Settings that are called otherwise on the command line, in files and in messages."""


def read_settings(given: Mapping[str, Any], file: Path | None = None, *, needs_data: bool = True) -> TrainingSettings:
    """Returns settings from those `given` (None for not given), which count before those of a .toml file.

    Raises RecipeError with a message for every field at fault.
    """
    asked = {name: value for name, value in given.items() if value is not None and value != ()}
    fields = read_toml(file) if file is not None else {}
    fields.pop("name", None)  # of the result (read_name)
    for pair in EITHER:
        if any(asked.get(name) for name in pair):
            fields = {name: value for name, value in fields.items() if name not in pair}
    fields |= asked
    problems: dict[str, Message] = {}
    try:
        settings = TrainingSettings.model_validate(fields)
    except ValidationError as error:
        names = {FLAGS.get(name, name) for name in TrainingSettings.model_fields}
        found = word_first(error.errors(), whole="settings", known={*names, "name"})
        problems = {FLAGS.get(name, name): text for name, text in found.items()}
        wrong = {str(one["loc"][0]) for one in error.errors() if one["loc"]}
        settings = TrainingSettings.model_validate({name: fields[name] for name in fields.keys() - wrong})
    problems = {**_find_problems(settings), **problems}  # of what is there twice, that it is no value comes first
    if not needs_data:
        problems.pop("data", None)
    if problems:
        raise RecipeError(problems)
    return settings


def read_name(file: Path | None) -> str | None:
    """Returns the name of the result that a .toml file has, if there is a file and it has one."""
    name = None if file is None else read_toml(file).get("name")
    if name is not None and not isinstance(name, str):
        raise RecipeError({"name": english(f"{name!r} in {file} is no text; write it in quotes")})
    return name


def read_toml(file: Path) -> dict[str, Any]:
    """Returns a file's settings, which may be called as on the command line; raises RecipeError for one that is none.

    Texts that may be several may be one, and a share may be a number.
    """
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise RecipeError({"config": english(f"{file} cannot be read: {error.strerror}")}) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError({"config": english(f"{file} cannot be read: {error}")}) from error
    own = {flag: name for name, flag in FLAGS.items()}
    fields: dict[str, Any] = {}
    for title, value in found.items():
        name = title.replace("-", "_")
        name = own.get(name, name)
        if name in fields:
            raise RecipeError({"config": english(f"{file} says {title} twice, with - and with _")})
        fields[name] = value
    for name in ("data", "sample", "prior_prompt"):
        if isinstance(fields.get(name), str):
            fields[name] = (fields[name],)
        elif isinstance(fields.get(name), list):
            fields[name] = tuple(fields[name])
    share = fields.get("validate_with")
    if isinstance(share, int | float) and not isinstance(share, bool):
        fields["validate_with"] = str(share)
    return fields


@dataclass(frozen=True, kw_only=True)
class _Need:
    """Settings that mean nothing where `holds` is false, and why."""

    names: tuple[str, ...]
    holds: Callable[[TrainingSettings], object]
    reason: Message


def _has_prior(settings: TrainingSettings) -> bool:
    return bool(settings.prior_prompt or settings.prior_prompts) or any(",prior" in place for place in settings.data)


_NEEDS = (
    _Need(
        names=("rank", "alpha", "start_from", "targets", "convolutions", "preserve", "lora_format"),
        holds=lambda settings: settings.lora or not settings.full,
        reason=say("is of a LoRA; leave it out with full"),
    ),
    _Need(
        names=("non_ema_revision",),
        holds=lambda settings: settings.full,
        reason=english("is of full; a LoRA learns from the weights that it is used with"),
    ),
    _Need(
        names=("keep_tags",),
        holds=lambda settings: settings.shuffle_tags,
        reason=english("is of shuffle_tags, without which tags stay where they are; give that too, or leave it out"),
    ),
    _Need(
        names=("validate_every",),
        holds=lambda settings: settings.validate_with is not None,
        reason=english("nothing is held back to validate with; give validate, or leave it out"),
    ),
    _Need(
        names=("sample_every",),
        holds=lambda settings: settings.sample,
        reason=english("there is no prompt to make samples of; give sample, or leave it out"),
    ),
    _Need(
        names=("prior_weight",),
        holds=_has_prior,
        reason=english("there are no prior pictures; give prior_prompt, prior_prompts or data marked prior, "
                       "or leave it out"),
    ),
    _Need(
        names=("hub_model_id", "hub_token"),
        holds=lambda settings: settings.push_to_hub,
        reason=english("nothing is uploaded without push_to_hub; give that too, or leave it out"),
    ),
)  # fmt: skip


def refuse_asked(settings: TrainingSettings, names: Iterable[str], reason: Message) -> dict[str, Message]:
    """Returns the reason for each of these settings that asks for something, which is not its default and not nothing.

    What would be without effect is refused: who asks for it believes that it has one.
    """
    return {
        name: reason
        for name in names
        if (value := getattr(settings, name)) and value != TrainingSettings.model_fields[name].default
    }


def _find_problems(settings: TrainingSettings) -> dict[str, Message]:
    problems: dict[str, Message] = {}
    if not settings.model:
        problems["model"] = say("name the model to start from")
    if not settings.data:
        problems["data"] = say("name a folder of pictures, or a dataset")
    if settings.lora == settings.full:
        problems["lora"] = say("choose one: --lora for a LoRA, or --full for all weights")
    if settings.steps is not None and settings.epochs is not None:
        problems["epochs"] = say("give steps or epochs, not both")
    if settings.frames is not None and settings.frames % 4 != 1:
        problems["frames"] = say("{frames} is not 4n + 1", frames=settings.frames)
    for need in _NEEDS:
        if not need.holds(settings):
            problems |= refuse_asked(settings, need.names, need.reason)
    for name in ("sample", "prior_prompt"):
        if any(not prompt.strip() for prompt in getattr(settings, name)):
            problems[name] = english("a prompt is empty; write one, or leave it out")
    if settings.output == Path():
        problems["output"] = english("is empty, or the folder that you are in; name one of its own")
    if settings.global_batch_size is not None and settings.global_batch_size % settings.accumulate:
        problems["accumulate"] = say(
            "{parts} parts do not divide a batch of {batch}",
            parts=settings.accumulate,
            batch=settings.global_batch_size,
        )
    if settings.schedule == "polynomial" and settings.rate <= POLYNOMIAL_END:
        problems["learning_rate"] = say(
            "{rate} is where polynomial ends, or below; choose more than {end}, or another lr_scheduler",
            rate=f"{settings.rate:g}",
            end=f"{POLYNOMIAL_END:g}",
        )
    if settings.lr_num_cycles > 1 and settings.schedule != "cosine_with_restarts":
        problems["lr_num_cycles"] = say("is of cosine_with_restarts; leave it out with {name}", name=settings.schedule)
    if settings.preserve and not settings.trigger:
        problems["preserve"] = say("needs a trigger, without which all stays as it was")
    if settings.optimizer == "schedule_free":
        if settings.ema:
            problems["ema"] = say("schedule_free averages by itself; leave it out")
        if not settings.adam_beta1:
            problems["adam_beta1"] = say("schedule_free averages by it; choose more than 0")
        if not settings.schedule.startswith("constant"):
            problems["lr_scheduler"] = say("schedule_free takes a constant rate; leave it out")
    if settings.validate_with is not None:
        problems |= _check_share(settings.validate_with)
    return problems


def _check_share(text: str) -> dict[str, Message]:
    if not text.strip():
        return {"validate": english("is empty; give a share such as 0.1, or a folder")}
    try:
        share = float(text)
    except ValueError:
        return {} if Path(text).exists() else {"validate": say("{text} is neither a share nor a folder", text=text)}
    return {} if 0 < share < 1 else {"validate": say("{text} is no share between 0 and 1", text=text)}
