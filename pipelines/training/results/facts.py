"""What a state remembers of the training that made it: what a run that goes on must share, and what it may change.

Weights half learnt for one thing and half for another are good for neither, so a run with another model, data or
trigger is refused. A person may well go on with another rate or less noise: that is taken, and said. What changes no
number that is learnt, such as how often samples are made, is in no state.
Every setting is in one of these groups. Not here: reading and writing states (state.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import RecipeError
from pipelines.families.trainable import Learner
from pipelines.messages import Message, say
from pipelines.training.settings import TrainingSettings

_FINGERPRINTS = {
    "data": say("other pictures, captions or repeats"),
    "prior": say("the same pictures, others of which are marked prior"),
    "start_from": say("another LoRA to start from, or none"),
    "base": say("another base of the same name"),
    "denoisers": say("other weights of the same non_ema_revision"),
}
TAKEN = "taken"
"""The fact that holds what may change, by the settings' names."""

_SHARED = (
    "kind", "rank", "alpha", "targets", "convolutions", "trigger", "preserve", "resolution", "buckets", "frames",
    "optimizer", "seed", "non_ema_revision",
)  # fmt: skip
_CHANGED = (
    "caption_dropout", "shuffle_tags", "keep_tags", "center_crop", "random_flip", "prior_weight", "lr_warmup_steps",
    "lr_num_cycles", "adam_beta1", "adam_beta2", "adam_weight_decay", "adam_epsilon", "max_grad_norm", "ema",
    "noise_offset", "shift", "variant",
)  # fmt: skip
NAMED_BY_OTHERS = {
    "model", "revision", "lora", "full", "expert", "start_from", "data", "caption", "image_column", "caption_column",
    "prior_prompt", "prior_prompts", "validate_with", "global_batch_size", "prediction_type", "steps", "epochs",
    "learning_rate", "lr_scheduler", "snr_gamma", "sigmas", "mixed_precision", "whole_clips",
}  # fmt: skip
"""Settings that count as what they lead to: `data` is the pictures that are learnt with what is said of them."""
WITHOUT_EFFECT = {
    "output", "lora_format", "accumulate", "validate_every", "sample", "sample_every", "save_every_minutes", "keep",
    "max_minutes", "push_to_hub", "hub_model_id", "hub_token", "profile", "remat", "strict", "mesh", "no_cache",
    "report_to", "save_precision",
}  # fmt: skip


def list_facts(
    settings: TrainingSettings,
    learner: Learner,
    scheduler_config: Mapping[str, Any],
    *,
    model: str,
    revision: str,
    base: str,
    expert: str,
    global_batch_size: int,
    data: str,
    prior: str,
    start_from: str | None,
    steps: int,
    dtype: str,
    denoisers: str | None = None,
) -> dict[str, Any]:
    """Lists the facts of a training of the component `expert`.

    `base` is a hash of one that lies in files of one's own, "" for others, of which `revision` tells. `data`,
    `prior` and `start_from` are hashes, `dtype` is what is computed in. `denoisers` is the commit of those that learn
    where it is not the base's, and known.
    """
    is_flow = learner.process == "flow"
    shared = {name: getattr(settings, name) for name in _SHARED}
    if settings.optimizer == "muon":
        shared["optimizer"] = "muon, each layer's matrices apart"  # states from before have stacks move by AdamW
    taken = {name: getattr(settings, name) for name in _CHANGED}
    if not is_flow:
        shared["prediction_type"] = settings.prediction_type or scheduler_config.get("prediction_type", "epsilon")
        taken["snr_gamma"] = learner.snr_gamma if settings.snr_gamma is None else settings.snr_gamma
    else:
        taken["sigmas"] = settings.sigmas or learner.spread
    return {
        **shared,
        "rank": settings.rank if settings.lora else None,
        "ema": settings.ema > 0,
        "model": model,
        "revision": revision,
        "base": base,
        "expert": expert,
        "global_batch_size": global_batch_size,
        "data": data,
        "prior": prior,
        "start_from": start_from,
        **({} if denoisers is None else {"denoisers": denoisers}),
        TAKEN: {
            **taken,
            "steps": steps,
            "learning_rate": settings.rate,
            "lr_scheduler": settings.schedule,
            "mixed_precision": dtype,
        },
    }


def tell_changes(found: Mapping[str, Any], asked: Mapping[str, Any]) -> Message | None:
    """Says what a run takes otherwise than the state's training did; None for nothing."""
    before = found.get(TAKEN, {})
    changes = [
        f"{name} {value} (before: {before[name]})"
        for name, value in asked.get(TAKEN, {}).items()
        if name in before and before[name] != value
    ]
    return say("Going on with other settings: {changes}", changes=", ".join(changes)) if changes else None


def refuse_differences(found: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    """Raises RecipeError where a run must share something with the state in a folder, and does not."""
    problems = {
        name: _tell_difference(name, before, value, folder=folder)
        for name, (before, value) in list_differences(found, asked).items()
    }
    if problems:
        raise RecipeError(problems)


def _tell_difference(name: str, before: Any, value: Any, *, folder: Path) -> Message:
    """Says that a state in a folder is of another training: with the value, or what its fingerprint stands for."""
    if name in _FINGERPRINTS:
        return say("{folder} holds a training of {what}; go on with those, or choose another output folder",
                   folder=folder, what=_FINGERPRINTS[name])  # fmt: skip
    return say(
        "{folder} holds a training with {found} in place of {value}; go on with that, or choose another output folder",
        folder=folder,
        found=before,
        value=value,
    )


def list_differences(found: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Maps what a run must share with a state and does not -> the state's value and the run's."""
    return {
        name: (found[name], value)
        for name, value in asked.items()
        if name != TAKEN and name in found and found[name] != value
    }
