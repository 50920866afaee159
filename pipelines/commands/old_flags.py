"""Flags of older scripts for SDXL, FLUX.2 and Wan on TPU, one-file and staged, so that their command lines still run.

What means something here becomes a flag of today. Of the others one line says why they have no effect, and so it does
of a flag of one stage that is given to another.
Not here: flags that the commands know themselves, under the same names as there.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pipelines.errors import RecipeError
from pipelines.messages import english

COMMANDS = ("generate", "encode", "denoise", "decode")

_TILES = "the attention kernel chooses its tiles for each chip and length; `plan --search attention` shows them"
_WARM = "every program is compiled before a stage starts, so nothing is left to warm up"
_ENCODED = "the prompt is in the stage files; `encode` writes them"
_DENOISED = "`denoise` decides that, and the latents carry it"
_DENOISES = "it belongs to `denoise`"
_IN_ONE_GO = "`generate` writes no stage files; `encode`, `denoise` and `decode` do"
_NAMED = "the stage files name the model; `encode` writes them"
_DECODES = "it belongs to `decode`; this stage writes its file into --output_dir"

# flag -> how many values follow at most, and why it has no effect, by command ("" is every other one)
_WITHOUT_EFFECT: dict[str, tuple[int, dict[str, str]]] = {
    "bqsize": (1, {"": _TILES}),
    "bkvsize": (1, {"": _TILES}),
    "bkvcomputesize": (1, {"": _TILES}),
    "use_custom_attention": (0, {"": "on a TPU, long attention always runs in our own kernel"}),
    "use_fsdp": (
        0,
        {"": "model and mesh decide how weights are split; Wan's layers are always kept in parts on all devices"},
    ),
    "warmup": (0, {"": _WARM}),
    "warmup_steps": (1, {"": _WARM}),
    "window_size": (2, {"": _DENOISES}),
    "use_k_smooth": (0, {"": _DENOISES}),
    "input_dir": (1, {"generate": _IN_ONE_GO, "encode": "this stage comes first"}),
    "output_dir": (1, {"generate": _IN_ONE_GO}),
    "output": (1, {"": _DECODES}),
    **dict.fromkeys(("prompt", "negative_prompt", "remote_url"), (1, {"": _ENCODED})),
    "remote_encoder": (0, {"": _ENCODED}),
    **dict.fromkeys(("model", "model_id"), (1, {"": _NAMED})),
    "max_sequence_length": (1, {"": _ENCODED}),
    **dict.fromkeys(
        ("height", "width", "frames", "num_inference_steps", "guidance_scale", "flow_shift", "seed"),
        (1, {"": _DENOISED}),
    ),
}
_AXES = {"use_dp": 0, "sp_num": 1}
FLAGS = (*_WITHOUT_EFFECT, *_AXES)


@dataclass(kw_only=True)
class Translated:
    """A command line of today, and what is said about the flags that changed or went."""

    arguments: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


def translate(command: str, arguments: Sequence[str], *, known: Collection[str]) -> Translated:
    """Returns the arguments of `command` (without its name) with old flags replaced; `known` are its own flags' names.

    Names are written with underscores. Raises RecipeError for a value that is no whole number where one is needed.
    """
    found = Translated()
    axes: dict[str, int] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--"):
            found.arguments.append(word)
        elif name in _AXES:
            values = _take(_AXES[name], [value] if equals else [], rest)
            axes[name] = _read_count(name, values) if _AXES[name] else 2
        elif name == "window_size" and name in known:
            values = _take(2, [value] if equals else [], rest)
            sizes = [_read_count(name, [one]) for one in values] or [_read_count(name, [])]
            found.arguments += ["--window-size", str(max(sizes))]
            if len({*sizes}) > 1:
                found.notes.append(
                    english(f"--window_size {' '.join(values)}: a window is as wide before as behind: {max(sizes)}.")
                )
        elif name in known or name not in _WITHOUT_EFFECT:
            found.arguments.append(word)
        else:
            count, reasons = _WITHOUT_EFFECT[name]
            values = _take(count, [value] if equals else [], rest)
            reason = reasons.get(command) or reasons[""]
            found.notes.append(english(f"{' '.join([f'--{name}', *values])} has no effect: {reason}."))
    _place(axes, found)
    return found


def _place(axes: dict[str, int], found: Translated) -> None:
    """Turns the axes of older meshes into a mesh of ours; devices that they leave split weights, as there."""
    if not axes:
        return
    flags = " ".join("--use_dp" if name == "use_dp" else f"--sp_num {size}" for name, size in axes.items())
    if any(word.split("=")[0] == "--mesh" for word in found.arguments):
        found.notes.append(english(f"{flags} has no effect: --mesh is given too."))
    elif "sp_num" not in axes:
        found.notes.append(
            english(f"{flags} has no effect: an even number of devices always shares the guidance pair.")
        )
    else:
        mesh = ",".join([*(["dp=2"] if "use_dp" in axes else []), f"sp={axes['sp_num']}", "tp=*"])
        found.arguments += ["--mesh", mesh]
        found.notes.append(english(f"{flags} is --mesh {mesh} here."))


def _take(count: int, given: list[str], rest: list[str]) -> list[str]:
    """Takes up to `count` values of a flag off the words that follow it."""
    while len(given) < count and rest and not rest[0].startswith("--"):
        given.append(rest.pop(0))
    return given


def _read_count(name: str, values: Sequence[str]) -> int:
    if not values or not values[0].isdecimal() or int(values[0]) < 1:
        raise RecipeError(
            {name: english(f"{values[0]!r} is not a whole number above 0") if values else english("needs a number")}
        )
    return int(values[0])
