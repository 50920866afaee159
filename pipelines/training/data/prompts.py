"""The prompts of prior pictures: those asked for, those of a file, or the model's own examples.

Not here: making the pictures (prior.py).
"""

from collections.abc import Sequence
from pathlib import Path

from pipelines.errors import RecipeError
from pipelines.messages import english, say
from pipelines.models.catalog import Model
from pipelines.training.data.examples import Example
from pipelines.training.settings import TrainingSettings

AUTO = "auto"


def list_prior_prompts(settings: TrainingSettings, model: Model) -> tuple[str, ...]:
    """Lists the prompts, none twice; raises RecipeError for a file that cannot be read or has none."""
    return tuple(dict.fromkeys((*settings.prior_prompt, *_read(settings.prior_prompts, model))))


def count_prior(examples: Sequence[Example], prompts: Sequence[str]) -> int:
    """Returns how many prior pictures are made: as many as there are others, or prompts if there are more."""
    return max(sum(not example.is_prior for example in examples), len(prompts)) if prompts else 0


def _read(named: str | None, model: Model) -> list[str]:
    if named is None:
        return []
    if named == AUTO:
        found = [example.prompt for example in model.examples]
        if not found:
            raise RecipeError(
                {"prior_prompts": say("{model} has no example prompts; name a file of some", model=model.title)}
            )
        return found
    try:
        lines = Path(named).read_text("utf-8").splitlines()
    except OSError as error:
        raise RecipeError({"prior_prompts": english(f"{named} cannot be read: {error.strerror}")}) from error
    except UnicodeDecodeError as error:
        raise RecipeError({"prior_prompts": english(f"{named} cannot be read: {error}")}) from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise RecipeError({"prior_prompts": say("{file} has no prompts; write one a line", file=named)})
    return found
