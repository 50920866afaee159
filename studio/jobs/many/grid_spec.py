"""Grids: one recipe that becomes a table of jobs, the product of the values of all axes.

A grid is counted and priced before anything is queued. Its jobs are ordered so that each model is loaded once, the
resident one first, and LoRAs change as seldom as possible, whatever the cells' places in the table.
Not here: parsing axes (axes.py), rows in the database (grid_store.py), the sheet (library/sheet.py).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from pydantic import ConfigDict

from pipelines.errors import RecipeError
from pipelines.messages import say
from pipelines.recipes.recipe import Recipe, carry_over
from studio.jobs.many.axes import Axes, AxisField, Value
from studio.jobs.many.sweep import MAX_JOBS
from studio.jobs.queue import Wanted

OF_PARTS = (AxisField.PROMPT, AxisField.LORA_SCALE)  # axes that change only a part of a field

Prepare = Callable[[Recipe], Wanted]
"""Checks and fills a recipe for whoever asks (asking.py); raises RecipeError."""


class Grid(Axes):
    """A requested grid. Every cell is one picture, with the recipe's seed unless an axis varies the seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: Recipe

    @property
    def axes(self) -> Axes:
        return Axes(x=self.x, y=self.y, z=self.z)


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """A grid with its axes parsed. `base` is its resolved recipe; `scaled` maps scale axes to their LoRAs."""

    grid: Grid
    scaled: dict[str, str]
    values: dict[str, tuple[Value, ...]]
    base: Recipe
    prepare: Prepare

    @property
    def count(self) -> int:
        count = 1
        for values in self.values.values():
            count *= len(values)
        return count

    @property
    def is_too_many(self) -> bool:
        return self.count > MAX_JOBS

    def labels(self) -> dict[str, list[str]]:
        """Returns the labels of each axis, in order."""
        axes = self.grid.named()
        return {name: [axes[name].label(value) for value in values] for name, values in self.values.items()}

    def describe(self) -> dict[str, Any]:
        """Returns the preview: the number of jobs and the labels of the axes."""
        may_compile = [name for name, axis in self.grid.named().items() if axis.field.may_compile]
        return {"count": self.count, "axes": self.labels(), "may_compile": may_compile, "limit": MAX_JOBS}

    @cached_property
    def cells(self) -> list[Wanted]:
        """One job for each place, page by page, row by row; raises RecipeError that names the axis at fault."""
        if self.is_too_many:
            raise RecipeError(
                {
                    "x": say(
                        "stands for {count} jobs; at most {limit} are queued at a time",
                        count=f"{self.count:,}",
                        limit=MAX_JOBS,
                    )
                }
            )
        names = list(self.values)[::-1]  # the columns change first
        choices = product(*(self.values[name] for name in names))
        return [self._make_cell(dict(zip(names, chosen, strict=True))) for chosen in choices]

    def order(self, resident: str | None) -> list[int]:
        """Returns the places of the cells in the order in which to queue them."""
        models = list(dict.fromkeys(cell.recipe.model for cell in self.cells))
        programs = list(dict.fromkeys((cell.recipe.model, cell.programs) for cell in self.cells))

        loras = list(dict.fromkeys(cell.recipe.loras for cell in self.cells))  # a change of LoRAs rereads weights

        def rank(place: int) -> tuple[bool, int, int, int]:
            cell = self.cells[place]
            model, program = cell.recipe.model, (cell.recipe.model, cell.programs)
            return model != resident, models.index(model), programs.index(program), loras.index(cell.recipe.loras)

        return sorted(range(self.count), key=rank)

    def _make_cell(self, chosen: dict[str, Value]) -> Wanted:
        axes = self.grid.named()
        by_field = {axes[name].field: value for name, value in chosen.items()}
        scales = {self.scaled[name]: value for name, value in chosen.items() if name in self.scaled}
        fields = self._base_for(by_field.get(AxisField.MODEL))
        for field in ("prompt", "negative_prompt"):
            if fields.get(field):
                fields[field] = _replace(fields[field], self._list_replacements(chosen))
        fields |= {str(field): value for field, value in by_field.items() if field not in OF_PARTS}
        if scales:
            given = [lora.model_dump() for lora in self.grid.recipe.loras]
            fields["loras"] = [lora | {"scale": scales.get(lora["ref"], lora["scale"])} for lora in given]
        if AxisField.GUIDANCE_SCALE in by_field and AxisField.GUIDANCE_SCALE_2 not in by_field:
            fields["guidance_scale_2"] = None  # follows the first one, as in diffusers
        try:
            return self.prepare(Recipe.model_validate(fields))
        except RecipeError as error:
            axis_of = {str(axis.field): name for name, axis in axes.items()}
            if self.scaled:
                axis_of["loras"] = next(iter(self.scaled))
            raise RecipeError({axis_of.get(name, name): message for name, message in error.fields.items()}) from error

    def _base_for(self, model: Value | None) -> dict[str, Any]:
        if model in (None, self.base.model):
            return self.base.to_json()
        return {"model": model, **carry_over(self.base)}

    def _list_replacements(self, chosen: dict[str, Value]) -> dict[str, str]:
        """Maps each text in the prompt to its replacement."""
        prompts = [name for name, axis in self.grid.named().items() if axis.field is AxisField.PROMPT]
        return {str(self.values[name][0]): str(chosen[name]) for name in prompts}


def expand(grid: Grid, prepare: Prepare) -> Expanded:
    """Parses axes and recipe; raises RecipeError, whose fields are the recipe's and the axes `x`, `y` and `z`."""
    values = grid.read()
    base = prepare(grid.recipe.model_copy(update={"batch_size": 1})).recipe
    for name, axis in grid.named().items():
        words = str(values[name][0])
        if axis.field is AxisField.PROMPT and words not in base.prompt and words not in (base.negative_prompt or ""):
            raise RecipeError(
                {name: say("{text} does not stand in the prompt; its first value must", text=repr(words[:60]))}
            )
    return Expanded(grid=grid, scaled=_find_scaled(grid), values=values, base=base, prepare=prepare)


def _find_scaled(grid: Grid) -> dict[str, str]:
    """Maps axes of a LoRA's scale to their LoRAs; raises RecipeError for one that the recipe does not have."""
    refs = list(dict.fromkeys(lora.ref for lora in grid.recipe.loras))
    found: dict[str, str] = {}
    for name, axis in grid.named().items():
        if axis.field is not AxisField.LORA_SCALE:
            continue
        if not refs:
            raise RecipeError({name: say("the recipe has no LoRA; add one first")})
        if axis.lora is None and len(refs) > 1:
            raise RecipeError({name: say("say whose scale with `lora`: {names}", names=", ".join(refs))})
        if axis.lora is not None and axis.lora not in refs:
            raise RecipeError(
                {
                    name: say(
                        "{ref} is not among the recipe's LoRAs: {names}",
                        ref=repr(axis.lora[:60]),
                        names=", ".join(refs),
                    )
                }
            )
        ref = axis.lora or refs[0]
        if ref in found.values():
            raise RecipeError({name: say("{ref} has an axis already; take something else", ref=repr(ref))})
        found[name] = ref
    return found


def _replace(text: str, replacements: dict[str, str]) -> str:
    """Replaces all texts at once, so that no axis matches text that another one inserted."""
    if not replacements:
        return text
    words: Sequence[str] = sorted(replacements, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, words)), lambda found: replacements[found[0]], text)
