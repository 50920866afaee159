"""Noise levels that a recipe names itself, one a step: `sigmas`, in place of a number of steps and a spacing.

Of a diffusion model they are diffusers' and k-diffusion's sigmas (SDXL's begin at 14.6); of a flow the share of noise,
from 1, or its timesteps, from 1000. They are what the model sees: nothing shifts them, where diffusers' pipelines shift
the `sigmas` that they are given. A last 0 may be left out.
"""

from collections.abc import Sequence

from pipelines.messages import NOTHING, Message, say
from pipelines.models.model import Model
from pipelines.recipes.schedulers import FLOW, MOST_STEPS, TAKE_SIGMAS, TIMESTEPS

MAX_SIGMAS = 129  # the rows of a table and a last 0
MAX_SIGMA = 10_000.0  # the largest of a diffusion with zero terminal SNR is about 4096


def read_sigmas(text: str) -> tuple[float, ...]:
    """Reads numbers with commas or blanks between them; raises ValueError, which says what is allowed."""
    try:
        return tuple(float(number) for number in text.replace(",", " ").split())
    except ValueError as error:
        raise ValueError(
            say("{text} are not numbers; write them with commas, such as 1000,937.5,833.3,625", text=repr(text[:60]))
        ) from error


def fit_sigmas(sigmas: Sequence[float] | None, scheduler: str) -> tuple[float, ...] | None:
    """Returns the levels without a last 0, a flow's as shares of noise; None for none."""
    levels = tuple(sigmas or ())
    if levels[1:] and levels[-1] == 0:
        levels = levels[:-1]
    if scheduler in FLOW and any(level > 1 for level in levels):
        levels = tuple(round(level / TIMESTEPS, 9) for level in levels)
    return levels or None


def list_takers(model: Model) -> tuple[str, ...]:
    """Lists the model's schedulers that take sigmas."""
    return tuple(name for name in model.schedulers if name in TAKE_SIGMAS)


def find_problem(levels: Sequence[float], scheduler: str, model: Model) -> Message:
    """Returns why these levels (`fit_sigmas`) cannot be this scheduler's, "" if they can."""
    if scheduler not in TAKE_SIGMAS:
        return say(
            "{scheduler} spaces its steps itself; leave the sigmas out, or take one of: {names}",
            scheduler=scheduler,
            names=", ".join(list_takers(model)) or say("none"),
        )
    most = min(model.max_steps, MOST_STEPS.get(scheduler, model.max_steps))
    if len(levels) > most:
        return say(
            "{count} sigmas are too many; {scheduler} takes up to {most}",
            count=len(levels),
            scheduler=scheduler,
            most=most,
        )
    highest = 1.0 if scheduler in FLOW else MAX_SIGMA
    falls = all(one > next_one for one, next_one in zip(levels, levels[1:], strict=False))
    if not falls or not all(0 < level <= highest for level in levels):  # also catches nan
        if scheduler in FLOW:
            return say(
                "a flow's sigmas fall from at most 1 (or timesteps from 1000) and stay above 0; a last 0 may be there"
            )
        return say("sigmas fall from at most {highest} and stay above 0; a last 0 may be there", highest=f"{highest:g}")
    return NOTHING


def list_idle_beside(asked_steps: int | None, asked_shift: float | None, levels: Sequence[float]) -> list[Message]:
    """Lists in sentences what was asked for and has no effect beside sigmas."""
    notes: list[Message] = []
    if asked_steps is not None and asked_steps != len(levels):
        notes.append(
            say(
                "{count} sigmas make {count} steps: the {steps} asked for have no effect.",
                count=len(levels),
                steps=asked_steps,
            )
        )
    if asked_shift is not None and asked_shift != 1:
        notes.append(
            say("Sigmas are taken as they are: the flow shift of {shift} has no effect.", shift=f"{asked_shift:g}")
        )
    return notes
