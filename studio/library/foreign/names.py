"""Translates other programs' names for models, LoRAs and samplers into ours."""

import re

from pipelines.models.catalog import Catalog, Model
from pipelines.prompts.lora_names import read_stem

_SAMPLERS = {
    "euler": "euler",
    "keuler": "euler",
    "eulera": "euler_ancestral",
    "keulera": "euler_ancestral",
    "eulerancestral": "euler_ancestral",
    "dpmpp2m": "dpmpp_2m",
    "kdpmpp2m": "dpmpp_2m",
    "dpmpp2msde": "dpmpp_2m_sde",
    "dpmpp2msdegpu": "dpmpp_2m_sde",
    "dpmppsde": "dpmpp_sde",
    "kdpmppsde": "dpmpp_sde",
    "dpmppsdegpu": "dpmpp_sde",
    "ersde": "er_sde",
    "ddim": "ddim",
    "lcm": "lcm",
    "tcd": "tcd",
    "flowmatcheuler": "flow_match_euler",
    "unipc": "unipc",
    "unipcbh2": "unipc",
    "unipcmultistep": "unipc",
}
_SPACINGS = {name: name for name in ("karras", "exponential", "trailing", "beta")} | {"sgmuniform": "trailing"}
_SCHEDULES = ("karras", "exponential", "sgmuniform", "polyexponential", "trailing", "ays", "substep")
_ORDINARY_SCHEDULES = ("", "automatic", "normal", "simple", "default", "discrete")


def find_model(name: str, catalog: Catalog) -> Model | None:
    """Finds the catalogue's model with this file, id, title or repository; None when there is none."""
    plain = _plain(read_stem(name))
    for model in catalog.models:
        own = {model.id, model.title, *([model.repo.rpartition("/")[2]] if model.repo else [])}
        if plain in {_plain(one) for one in own}:
            return model
    if "refiner" in plain or "inpaint" in plain or "kleinbase" in plain:
        return None
    return next((model for model in catalog.models if model.file_names and re.search(model.file_names, plain)), None)


def split_sampler(name: str) -> tuple[str, str]:
    """Splits older names such as `DPM++ 2M Karras` into sampler and schedule, which may be empty."""
    for schedule in _SCHEDULES:
        if _plain(name).endswith(schedule) and _plain(name) != schedule:
            words = name.split()
            return " ".join(words[:-1]), words[-1]
    return name, ""


def find_scheduler(sampler: str, model: Model) -> str | None:
    """Finds the model's scheduler that does the same; None when it has none."""
    found = _SAMPLERS.get(_plain(sampler.replace("++", "pp")))
    if found == "euler" and "flow_match_euler" in model.schedulers:
        return "flow_match_euler"
    return found if found in model.schedulers else None


def find_spaced(scheduler: str, schedule: str, model: Model) -> str | None:
    """Finds the model's scheduler that spaces the steps of `scheduler` in this way; None when it has none."""
    spaced = f"{scheduler}_{_SPACINGS.get(_plain(schedule))}"
    return spaced if spaced in model.schedulers else None


def is_ordinary_schedule(name: str) -> bool:
    """Tells whether the schedule's name means no more than the model's default timesteps."""
    return _plain(name) in _ORDINARY_SCHEDULES


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
