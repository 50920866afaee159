"""Questions about trainings, and which answers to them are known: compiled here, or shipped, of this very step.

Read without jax.
Not here: compiling what is not known (plan_training.py).
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import typer

from pipelines.commands import options
from pipelines.models.catalog import Model, Shape, load_catalog
from pipelines.models.fingerprints import fingerprint_learning, fingerprint_training_plans
from pipelines.plan import training
from pipelines.plan.topologies import Topology
from pipelines.runtime.devices.platform import list_flags
from pipelines.training.settings import TrainingSettings

PLANNED = ("optimizer", "ema", "preserve", "targets", "convolutions", "expert", "mixed_precision", "strict")
"""Settings beside rank, batch, parts and remat that change memory or time of a step; others change only what is learnt.

All are options of `plan --train`, too.
"""


def make_question(
    settings: TrainingSettings, model: Model, machine: Topology, *, shape: Shape, batch_size: int
) -> training.TrainingQuestion:
    """Returns the question about a training with these settings; what its steps do not depend on is left out."""
    usual = {name: field.default for name, field in TrainingSettings.model_fields.items()}
    if settings.expert == "both":  # all that there are, as without it
        settings = settings.model_copy(update={"expert": usual["expert"]})
    return training.TrainingQuestion(
        model=model.id,
        kind=settings.kind,
        topology=machine.name,
        shape=str(shape),
        batch_size=batch_size,
        rank=settings.rank if settings.lora else 0,
        accumulate=settings.accumulate,
        remat=settings.remat,
        others={name: value for name in PLANNED if (value := getattr(settings, name)) != usual[name]},
    )


def find_kept(
    question: training.TrainingQuestion, model: Model, place: options.DataDirectory
) -> training.TrainingAnswer | None:
    """Returns an answer that was compiled here, or else the one that ships; None for what was not asked yet.

    What fits in as many parts as were asked for is an answer to the strict question, too.
    """
    own = _find_own(name_own_file(place), question, made_of=fingerprint(model))
    found = own or find_shipped(question, model)
    if found is not None or not question.others.get("strict"):
        return found
    others = {name: value for name, value in question.others.items() if name != "strict"}
    found = find_kept(replace(question, others=others), model, place)
    return replace(found, question=question) if found is not None and found.accumulate == question.accumulate else None


def name_own_file(place: options.DataDirectory) -> Path:
    return place.plan_cache_dir / "training.jsonl"


def fingerprint(model: Model) -> str:
    """Returns a hash of all that an answer depends on beside its question: model, code, versions and compiler flags."""
    return hashlib.sha256(f"{fingerprint_training_plans(model)} {list_flags('tpu')}".encode()).hexdigest()[:20]


def _find_own(file: Path, question: training.TrainingQuestion, *, made_of: str) -> training.TrainingAnswer | None:
    def tell(count: int) -> None:
        lines = "a line" if count == 1 else f"{count} lines"
        typer.echo(f"lumesh: {lines} of {file} cannot be read, and what they say would be compiled again", err=True)

    try:
        return training.find(file, question, made_of=made_of, on_damaged=tell)
    except OSError as error:
        typer.echo(f"lumesh: {file} cannot be read, and what it says would be compiled again: {error}", err=True)
        return None


def find_shipped(question: training.TrainingQuestion, model: Model) -> training.TrainingAnswer | None:
    """Returns the answer that ships, if this model is what ships, too, and no flags make another program of it."""
    found = training.find(training.SHIPPED, question)
    if found is None or list_flags("tpu"):
        return None
    shipped = next((one for one in load_catalog().models if one.id == model.id), None)
    return found if shipped is not None and fingerprint_learning(shipped) == fingerprint_learning(model) else None
