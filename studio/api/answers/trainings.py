"""Response models of trainings."""

from studio.api.answers.answer import Answer, eg
from studio.api.answers.jobs import JOB, Job
from studio.api.answers.library import UPLOAD
from studio.jobs.training import Strength


class QueuedTraining(Answer):
    """A training that was queued; `name` is what its LoRA will be called."""

    id: str = eg(JOB)
    name: str = eg("zorb")


class TrainingNumbers(Answer):
    """What a training does: updates of the weights, width of the LoRA's matrices, peak learning rate."""

    steps: int = eg(800)
    rank: int = eg(16)
    learning_rate: float = eg(0.002)


class Taking(Answer):
    """What something will take; null: not measured here yet, or without a price."""

    seconds: float | None = eg(310.0)
    cost_usd: float | None = eg(0.12)


class TrainingTaking(Taking):
    """What a training will take; null: no training of this model was measured here, and none was planned.

    `is_about`: no such training was, but one with twins in place of one without, or the steps of one that was paused,
    or what was planned is a LoRA of another rank, or perhaps another batch.
    `is_planned`: none was measured here; the TPU compiler estimated the steps, and nothing beside them is counted.
    """

    step_s: float | None = eg(0.35)
    is_about: bool = eg(False)
    is_planned: bool = eg(False)


class TrainingStrength(TrainingNumbers, TrainingTaking):
    """A strength's numbers, and what it will take; `alone` without twins: no trigger word, or not `preserve`."""

    alone: TrainingTaking


class TrainingPrior(Answer):
    """Pictures that a model makes before it learns: how many examples of its own it has, and what a picture takes."""

    prompts: int = eg(4)
    picture: Taking


class LearningModel(Answer):
    """A model that can learn, with the numbers behind each strength.

    `starts_from` is the repository whose weights learn in its place; `is_here`: all that a training loads is on this
    machine.
    """

    id: str = eg("demo-sdxl")
    title: str = eg("Postcards")
    is_here: bool = eg(True)
    starts_from: str | None = eg(None)
    strengths: dict[Strength, TrainingStrength]
    prior: TrainingPrior


class TrainingChoices(Answer):
    """What a training can be asked for."""

    may_train: bool = eg(True)
    default: str | None = eg("demo-sdxl")
    models: list[LearningModel]


class TrainingLine(Answer):
    """A training as lists show it; `loras` are the refs of its result, empty until it is done."""

    id: str = eg(JOB)
    name: str = eg("zorb")
    model: str = eg("demo-sdxl")
    trigger: str = eg("zorb")
    strength: Strength = eg("usual")
    numbers: TrainingNumbers
    pictures_count: int = eg(12)
    saved_step: int = eg(100)
    pause_requested: bool = eg(False)
    loras: list[str] = eg(["zorb"])
    job: Job


class Trainings(Answer):
    trainings: list[TrainingLine]
    last_event_id: int = eg(26)


class TrainingPicture(Answer):
    id: str = eg(UPLOAD)
    caption: str = eg("A zorb in a meadow")
    is_video: bool = eg(False)


class TrainingPoint(Answer):
    """A point of the curve: the mean loss of the steps since the one before."""

    step: int = eg(42)
    loss: float = eg(0.31)
    learning_rate: float = eg(0.0019)


class TrainingSample(Answer):
    """An output after a step, of the prompt of this number; its URL answers a WebP, of a video its middle frame."""

    step: int = eg(100)
    number: int = eg(0)
    prompt: str = eg("A zorb by the sea")
    width: int = eg(256)
    height: int = eg(256)
    url: str = eg(f"/api/v1/trainings/{JOB}/samples/100/0")


class Training(TrainingLine):
    """A training with all that is known of it."""

    pictures: list[TrainingPicture]
    start_from: str | None = eg(None)
    preserve: bool = eg(True)
    prior_prompts: list[str] = eg(["A lighthouse at dusk"])
    sample_prompts: list[str] = eg(["A zorb by the sea"])
    points: list[TrainingPoint]
    samples: list[TrainingSample]
    last_event_id: int = eg(26)
