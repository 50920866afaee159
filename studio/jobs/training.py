"""What somebody asks of a training: a model, a name, pictures with captions, and how strongly it shall learn.

Three strengths stand for the numbers that matter; whoever knows better gives numbers. Pictures are ids of uploads and
outputs, never paths.
Not here: checking against the catalogue and the owner's pictures (asking_to_train.py), rows (trainings.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pipelines.models.model import Model
from pipelines.training.data.prompts import AUTO

MAX_PICTURES = 500
MAX_CAPTION_CHARS = 2000
MAX_SAMPLES = 4
SAMPLES_OF_A_PROMPT = 8
MAX_PRIOR_PROMPTS = 500

Strength = Literal["gentle", "usual", "strong"]
STRENGTHS: tuple[Strength, ...] = ("gentle", "usual", "strong")
PriorPrompt = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_CAPTION_CHARS)]


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The numbers behind a strength: updates of the weights, width of the LoRA's matrices, peak learning rate."""

    steps: int
    rank: int
    learning_rate: float


# 1e-4 and rank 16 are the defaults of diffusers' and peft's own scripts for these families.
_NUMBERS: Mapping[Strength, Numbers] = {
    "gentle": Numbers(steps=400, rank=8, learning_rate=5e-5),
    "usual": Numbers(steps=800, rank=16, learning_rate=1e-4),
    "strong": Numbers(steps=1600, rank=32, learning_rate=2e-4),
}
# The demo models have a thousandth of the weights: 12 pictures of a new subject need 2e-3.
_DEMO_NUMBERS: Mapping[Strength, Numbers] = {
    "gentle": Numbers(steps=400, rank=8, learning_rate=1e-3),
    "usual": Numbers(steps=500, rank=16, learning_rate=2e-3),
    "strong": Numbers(steps=1200, rank=32, learning_rate=2e-3),
}


def find_numbers(model: Model, strength: Strength) -> Numbers:
    """Returns the numbers behind a strength for this model."""
    return (_DEMO_NUMBERS if model.is_demo else _NUMBERS)[strength]


class TrainingPicture(BaseModel):
    """A picture to learn from, by its id, and what is to be seen in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str = Field(max_length=100)
    caption: str = Field(default="", max_length=MAX_CAPTION_CHARS)


class AskedTraining(BaseModel):
    """A training that somebody asks for; `steps`, `rank` and `learning_rate` override the strength's numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    model: str = Field(max_length=300, description="a model of the catalogue that can learn")
    name: str = Field(max_length=1000, description="of the LoRA, as recipes will name it")
    trigger: str = Field(default="", max_length=200, description="words put before every caption that lacks them")
    pictures: tuple[TrainingPicture, ...] = Field(max_length=MAX_PICTURES)
    preserve: bool = Field(
        default=True,
        strict=True,
        description="with a trigger: prompts without it keep their pictures; doubles the work of a step",
    )
    prior_prompts: tuple[PriorPrompt, ...] = Field(
        default=(),
        max_length=MAX_PRIOR_PROMPTS,
        description="prompts of other things, of which the model makes pictures before it learns, so as to keep them; "
        f"`{AUTO}` stands for the model's own examples",
    )
    strength: Strength = "usual"
    start_from: str | None = Field(
        default=None, max_length=300, description="a LoRA here that learns on, by its `ref`; `rank` is its own then"
    )
    steps: int | None = Field(default=None, strict=True, ge=1, le=100_000)
    rank: int | None = Field(default=None, strict=True, ge=1, le=256)
    learning_rate: float | None = Field(default=None, strict=True, gt=0, le=1)
    sample_prompts: tuple[str, ...] = Field(
        default=(), max_length=MAX_SAMPLES, description="pictures to make while it learns; a caption if left out"
    )

    def choose_numbers(self, model: Model) -> Numbers:
        """Returns the numbers to train with."""
        own = find_numbers(model, self.strength)
        return Numbers(
            steps=self.steps or own.steps,
            rank=self.rank or own.rank,
            learning_rate=self.learning_rate or own.learning_rate,
        )

    def with_numbers(self, model: Model) -> Self:
        """Returns it with the numbers that its strength means now, which a later version may choose otherwise."""
        return self.model_copy(update=vars(self.choose_numbers(model)))

    @property
    def has_twins(self) -> bool:
        """Tells whether every picture is shown twice, with the trigger and without."""
        return self.preserve and bool(self.trigger.strip())

    def list_prior_prompts(self, model: Model) -> list[str]:
        """Lists the prompts of the pictures that the model makes first."""
        examples = [example.prompt for example in model.examples]
        lists = (examples if prompt == AUTO else [prompt] for prompt in self.prior_prompts)
        return list(dict.fromkeys(prompt for prompts in lists for prompt in prompts))

    def count_prior_pictures(self, model: Model) -> int:
        """Returns how many pictures the model makes first: as many as there are to learn, or prompts if more."""
        return max(len(self.pictures), len(self.list_prior_prompts(model))) if self.prior_prompts else 0

    def caption_of(self, picture: TrainingPicture) -> str:
        """Returns what is learnt for a picture; the trigger alone where it has no caption."""
        return picture.caption.strip() or self.trigger.strip()


def count_rounds(model: Model) -> int:
    """Returns how many networks learn one after the other, each for all steps: of two experts both."""
    return 1 if model.guidance_scale_2 is None else 2


def choose_sample_every(steps: int) -> int:
    """Returns after how many steps samples are made: at most eight times, the last time after the last step."""
    count = max(count for count in range(1, SAMPLES_OF_A_PROMPT + 1) if steps % count == 0)
    return steps // count
