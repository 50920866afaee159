"""Questions about trainings, and which answers to them are known: compiled here, or shipped, of this very step.

Read without jax.
Not here: compiling what is not known (plan_training.py).
"""

import hashlib
from pathlib import Path

import typer

from pipelines.commands import options
from pipelines.models.catalog import Model, Shape, load_catalog
from pipelines.models.fingerprints import fingerprint_learning, fingerprint_training_plans
from pipelines.plan import training
from pipelines.plan.topologies import Topology
from pipelines.runtime.devices.platform import list_flags
from pipelines.training.settings import TrainingSettings

PLANNED = ("optimizer", "ema", "preserve", "targets", "convolutions", "expert", "mixed_precision")
"""Settings beside rank, batch, parts and remat that change memory or time of a step; others change only what is learnt.
"""
FLAGS_OF_OTHERS = frozenset(PLANNED) - {"mixed_precision"}
"""Those of them that are options of `plan --train`; the other one is for its --config."""


def make_question(
    settings: TrainingSettings, model: Model, machine: Topology, *, shape: Shape, batch_size: int
) -> training.TrainingQuestion:
    """Returns the question about a training with these settings; what its steps do not depend on is left out."""
    fields = TrainingSettings.model_fields
    return training.TrainingQuestion(
        model=model.id,
        kind=settings.kind,
        topology=machine.name,
        shape=str(shape),
        batch_size=batch_size,
        rank=settings.rank if settings.lora else 0,
        accumulate=settings.accumulate,
        remat=settings.remat,
        others={name: value for name in PLANNED if (value := getattr(settings, name)) != fields[name].default},
    )


def find_kept(
    question: training.TrainingQuestion, model: Model, place: options.DataDirectory
) -> training.TrainingAnswer | None:
    """Returns an answer that was compiled here, or else the one that ships; None for what was not asked yet."""
    own = _find_own(name_own_file(place), question, made_of=fingerprint(model))
    return own or find_shipped(question, model)


def name_own_file(place: options.DataDirectory) -> Path:
    return place.plan_cache_dir / "training.jsonl"


def fingerprint(model: Model) -> str:
    """Returns a hash of all that an answer depends on beside its question: model, code, versions and compiler flags."""
    return hashlib.sha256(f"{fingerprint_training_plans(model)} {list_flags('tpu')}".encode()).hexdigest()[:20]


def _find_own(file: Path, question: training.TrainingQuestion, *, made_of: str) -> training.TrainingAnswer | None:
    try:
        return training.find(file, question, made_of=made_of)
    except (ValueError, KeyError, TypeError):
        typer.echo(f"lumesh: {file} is damaged, and is begun anew", err=True)
        file.unlink()
        return None


def find_shipped(question: training.TrainingQuestion, model: Model) -> training.TrainingAnswer | None:
    """Returns the answer that ships, if this model is what ships, too, and no flags make another program of it."""
    found = training.find(training.SHIPPED, question)
    if found is None or list_flags("tpu"):
        return None
    shipped = next((one for one in load_catalog().models if one.id == model.id), None)
    return found if shipped is not None and fingerprint_learning(shipped) == fingerprint_learning(model) else None
