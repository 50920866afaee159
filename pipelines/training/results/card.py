"""The model card of a result: what the hub sorts by, how to use it, and how it learnt.

Nothing in it depends on when or how often the training was interrupted. A model that no repository has, such as a
folder of one's own, is named in words alone: the hub would take it for one of its own.
"""

import json
import re
from collections.abc import Mapping
from pathlib import PurePath

from pipelines.loras.files import SUFFIX, LoraFile
from pipelines.models.model import Model
from pipelines.training.checks import Checked
from pipelines.training.settings import TrainingSettings

_LICENCES = {
    "apache-2.0": "apache-2.0",
    "creativeml openrail-m": "creativeml-openrail-m",
    "creativeml open rail++-m": "openrail++",
    **{name: name for name in ("creativeml-openrail-m", "openrail++", "openrail", "mit", "cc-by-4.0", "cc-by-nc-4.0")},
}
"""The catalogue's names of licences, in small letters -> the hub's; all others are `other` there, with their name."""


def write_card(settings: TrainingSettings, checked: Checked, *, steps: int) -> str:
    """Returns the card of what was learnt in so many steps, in Markdown behind fields in YAML."""
    model, name = checked.model, settings.hub_model_id or checked.name
    start = model.choose_start(revision=settings.revision, variant=settings.variant)
    base = model.repo if settings.lora else start.repo
    fields = {
        **({"base_model": json.dumps(base)} if base else {}),  # YAML reads JSON
        **({"base_model_relation": "adapter" if settings.lora else "finetune"} if base else {}),
        **_describe_licence(model.licence),
        "library_name": "diffusers",
        "pipeline_tag": "text-to-video" if model.is_video else "text-to-image",
        **({"tags": '["lora"]'} if settings.lora else {}),
        **({"instance_prompt": json.dumps(settings.trigger)} if settings.trigger else {}),
    }
    parts = [
        "---",
        *(f"{field}: {value}" for field, value in fields.items()),
        "---",
        "",
        f"# {checked.name}",
        "",
        f"{_name_kind(settings, model, start)}, trained with Lumesh.",
        *(["", f"Trigger words: `{settings.trigger}`"] if settings.trigger else []),
        *_show_use(settings, checked, base=base, name=name),
        "",
        "## How it learnt",
        "",
        "| | |",
        "|---|---|",
        *(f"| {title} | {value} |" for title, value in _list_numbers(settings, checked, steps=steps).items()),
    ]
    return "\n".join(parts) + "\n"


def _name_kind(settings: TrainingSettings, model: Model, start: Model) -> str:
    if settings.lora:
        return f"A LoRA of {model.title}" + (f" that learnt from `{start.repo}`" if start.repo != model.repo else "")
    return f"A fine-tuned model of {f'`{start.repo}`' if start.repo != model.repo else model.title}"


def _describe_licence(licence: str) -> dict[str, str]:
    if not licence:
        return {}
    if (known := _LICENCES.get(licence.lower())) is not None:
        return {"license": known}
    plain = re.sub(r"[^a-z0-9.]+", "-", licence.lower()).strip("-")
    return {"license": "other", "license_name": json.dumps(plain)}


def _show_use(settings: TrainingSettings, checked: Checked, *, base: str, name: str) -> list[str]:
    """Shows how diffusers makes something of the result, where a few lines can."""
    model = checked.model
    if settings.lora and (not base or settings.lora_format == "kohya" or _has_experts(model)):
        return []
    taken = base if settings.lora else name
    learnt = [f"pipeline.load_lora_weights({_quote(name)}, weight_name={_quote(checked.name + SUFFIX)})"]
    prompt = _quote(next(iter(settings.sample), settings.trigger or "..."))
    made = f"video = pipeline({prompt}).frames[0]" if model.is_video else f"image = pipeline({prompt}).images[0]"
    return [
        "",
        "```python",
        "import torch",
        "from diffusers import DiffusionPipeline",
        "",
        f"pipeline = DiffusionPipeline.from_pretrained({_quote(taken)}, torch_dtype=torch.bfloat16)",
        *(learnt if settings.lora else []),
        made,
        "```",
    ]


def _quote(text: str) -> str:
    """Returns a text as Python has it."""
    return json.dumps(text, ensure_ascii=False)


def _has_experts(model: Model) -> bool:
    return model.guidance_scale_2 is not None


def _list_numbers(settings: TrainingSettings, checked: Checked, *, steps: int) -> Mapping[str, str]:
    sizes = ", ".join(f"{shape} ({count})" for shape, count in checked.buckets.items())
    return {
        "pictures" if not checked.model.is_video else "pictures and videos": f"{len(checked.examples)}: {sizes}",
        "steps": f"{steps}, of {checked.batch_size} each",
        "learning rate": f"{settings.rate:g}, {settings.schedule}",
        "optimizer": settings.optimizer,
        **({"rank": f"{settings.rank}, alpha {settings.alpha or settings.rank:g}"} if settings.lora else {}),
        **({"learnt on from": _name_first(checked.first_lora)} if checked.first_lora is not None else {}),
        **({"expert": settings.expert} if settings.expert else {}),
        **({"average of the weights": f"decay {settings.ema:g}"} if settings.ema else {}),
        "written in": settings.save_precision,
    }


def _name_first(lora: LoraFile) -> str:
    """Returns the name of the file alone, as a cell of a table has it."""
    return "`{}`".format(PurePath(lora.ref).name.replace("|", "\\|"))
