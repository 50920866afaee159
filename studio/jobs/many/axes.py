"""Parses what people type for an axis of a grid: "4, 8, 12", "1-5", "1-9 (+2)", "0-20 [5]", "red, blue".

An axis varies a field of the recipe. A prompt's axis is search and replace: its first value is the text to replace.
Ranges are counted before they are expanded, so a typing error costs nothing.
Not here: which values a model takes (pipelines/recipes/resolving.py), how axes multiply (grid_spec.py).
"""

import csv
import re
from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field

from pipelines.errors import RecipeError
from pipelines.messages import Message, say, tell
from studio.jobs.states import MeaningfulEnum

MAX_VALUES = 100  # the number of jobs that can be queued at a time (sweep.py)
MAX_CHARS = 4000
MAX_REF_CHARS = 255  # the longest file name

Value = str | int | float


class AxisField(MeaningfulEnum):
    """The fields that an axis can vary; their `meaning` is shown before each value."""

    PROMPT = "prompt", ""
    SEED = "seed", "Seed"
    STEPS = "steps", "Steps"
    GUIDANCE_SCALE = "guidance_scale", "Guidance"
    GUIDANCE_SCALE_2 = "guidance_scale_2", "Second guidance"
    SCHEDULER = "scheduler", "Scheduler"
    STEP_CACHE = "step_cache", "Step cache"
    FLOW_SHIFT = "flow_shift", "Flow shift"
    STRENGTH = "strength", "Strength"
    LORA_SCALE = "lora_scale", "LoRA scale"
    SHAPE = "shape", ""
    MODEL = "model", ""

    @property
    def may_compile(self) -> bool:
        """Tells whether a new value may need compilation; other fields are inputs of the compiled programs."""
        return self in (AxisField.SHAPE, AxisField.MODEL, AxisField.STEP_CACHE)


WHOLE = (AxisField.SEED, AxisField.STEPS)
FRACTIONS = (
    *(AxisField.GUIDANCE_SCALE, AxisField.GUIDANCE_SCALE_2, AxisField.FLOW_SHIFT, AxisField.STRENGTH),
    AxisField.LORA_SCALE,
)

_NUMBER = r"\d+(?:\.\d+)?"
_RANGE = re.compile(
    rf"(?P<first>-?{_NUMBER})\s*[-–]\s*(?P<last>-?{_NUMBER})"
    rf"(?:\s*\(\s*\+?\s*(?P<step>{_NUMBER})\s*\)|\s*\[\s*(?P<count>\d+)\s*\])?"
)


class Axis(BaseModel):
    """One axis as typed; `values` are separated by commas, and in double quotes if they contain one.

    `lora` is the `ref` of the LoRA whose scale varies; it may be left out when the recipe has only one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: AxisField
    values: str = Field(min_length=1, max_length=MAX_CHARS)
    lora: str | None = Field(default=None, max_length=MAX_REF_CHARS, exclude_if=lambda ref: ref is None)

    def read(self) -> tuple[Value, ...]:
        """Returns every distinct value in order; raises ValueError, worded for people, when one is invalid."""
        if self.lora is not None and self.field is not AxisField.LORA_SCALE:
            raise ValueError(say("{field} is not a LoRA's; leave `lora` out", field=self.field))
        texts = _split(self.values)
        if self.field in WHOLE or self.field in FRACTIONS:
            numbers = [number for text in texts for number in self._read_numbers(text)]
            found: list[Value] = list(dict.fromkeys(numbers))
        else:
            found = list(dict.fromkeys(self._read_text(text) for text in texts))
        if not found:
            raise ValueError(say("write at least one value"))
        if len(found) > MAX_VALUES:
            raise _too_many(len(found))
        if self.field is AxisField.PROMPT and len(found) < 2:
            raise ValueError(say("write what stands in the prompt, a comma, and what to put in its place"))
        return tuple(found)

    def label(self, value: Value) -> str:
        """Formats a value for the contact sheet."""
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return f"{self.lora or self.field.meaning} {text}".strip()

    def _read_numbers(self, text: str) -> list[int] | list[float]:
        """Parses numbers; only the scale of a LoRA may be negative."""
        if text.startswith("-") and self.field is not AxisField.LORA_SCALE:
            raise _no_number(text)
        return _read_numbers(text, is_whole=self.field in WHOLE)

    def _read_text(self, text: str) -> str:
        """Normalizes text to lower-case ids; pages show dpmpp_2m as "DPM++ 2M"."""
        if self.field is AxisField.PROMPT:
            return text
        text = text.lower()
        if self.field is AxisField.SHAPE:
            return re.sub(r"\s*[x×]\s*", "x", text)
        return text.replace("+", "p").replace(" ", "_") if self.field is AxisField.SCHEDULER else text


class Axes(BaseModel):
    """The columns `x`, the rows `y`, and, with `z`, several such tables below one another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    x: Axis
    y: Axis | None = None
    z: Axis | None = None

    def named(self) -> dict[str, Axis]:
        """Returns the axes that are set, by name."""
        return {name: axis for name in ("x", "y", "z") if (axis := getattr(self, name)) is not None}

    def read(self) -> dict[str, tuple[Value, ...]]:
        """Returns the values of each axis; raises RecipeError, which names the axis, when one cannot be parsed."""
        found: dict[str, tuple[Value, ...]] = {}
        problems: dict[str, Message] = {}
        seen: dict[tuple[AxisField, str | None], str] = {}
        for name, axis in self.named().items():
            try:
                found[name] = axis.read()
            except ValueError as error:
                problems[name] = tell(error)
            what = (axis.field, axis.lora)
            if what in seen and axis.field is not AxisField.PROMPT:
                problems[name] = say(
                    "the axis {axis} has {name} already; take something else",
                    axis=seen[what],
                    name=axis.lora or axis.field,
                )
            seen[what] = name
        if problems:
            raise RecipeError(problems)
        return found


def _split(text: str) -> list[str]:
    if '"' not in text:
        text = text.replace("，", ",").replace("、", ",")
    try:
        rows = list(csv.reader(text.splitlines(), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ValueError(say('a double quote has no partner; write "a, b" for one value with a comma')) from error
    return [value.strip() for row in rows for value in row if value.strip()]


def _read_numbers(text: str, *, is_whole: bool) -> list[int] | list[float]:
    found = _RANGE.fullmatch(text)
    if found is None and not re.fullmatch(f"-?{_NUMBER}", text):
        raise _no_number(text)
    numbers = _read_range(found) if found else [Decimal(text)]
    if is_whole:
        is_rounded = found is not None and found["count"] is not None
        if not is_rounded and any(number != int(number) for number in numbers):
            raise ValueError(say("{text} has values that are not whole numbers", text=repr(text[:40])))
        return [round(number) for number in numbers]
    return [round(float(number), 6) for number in numbers]


def _no_number(text: str) -> ValueError:
    return ValueError(
        say("{text} is neither a number nor a range; write 8, 1-5, 1-9 (+2) or 1-9 [5]", text=repr(text[:40]))
    )


def _read_range(found: re.Match[str]) -> list[Decimal]:
    first, last = Decimal(found["first"]), Decimal(found["last"])
    span = abs(last - first)
    if found["count"]:
        count = int(found["count"])
        if not 2 <= count <= MAX_VALUES:
            raise ValueError(
                say(
                    "{text}: between the brackets stands how many values, 2 to {limit}",
                    text=repr(found[0]),
                    limit=MAX_VALUES,
                )
            )
        step = span / (count - 1)
    else:
        step = Decimal(found["step"] or 1)
        if not step:
            raise ValueError(say("{text} never gets to its end", text=repr(found[0])))
        if span / step >= MAX_VALUES:
            raise _too_many(int(span / step) + 1)
        count = int(span / step) + 1
    return [first + (step if last >= first else -step) * number for number in range(count)]


def _too_many(count: int) -> ValueError:
    return ValueError(
        say("stands for {count} values; at most {limit} are made at a time", count=f"{count:,}", limit=MAX_VALUES)
    )
