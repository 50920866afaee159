"""The trainings that the page of plans lists, and that page, made of kept answers.

The rows are a training of each model on the machines that it is likely to have, the first one that of diffusers'
script for TPU. Rows that nobody has had the time to compile yet are listed as such, never guessed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.plan.topologies import SLICES, TOPOLOGIES, Topology
from pipelines.plan.training import TrainingAnswer, TrainingQuestion, find
from pipelines.plan.training_report import count_dollars, count_hours

STEPS = 1000
_RANK = 16
_ROWS = (
    ("sd2-base", "full", "v5p-64", "512x512", 2048),
    ("sdxl-base", "full", "v6e-8", "1024x1024", 8),
    ("sdxl-base", "full", "v6e-8", "1024x1024", 32),
    ("sdxl-base", "full", "v5p-8", "1024x1024", 16),
    ("sdxl-base", "lora", "v6e-8", "1024x1024", 8),
    ("flux2-klein-4b", "lora", "v6e-8", "1024x1024", 8),
    ("flux2-klein-4b", "lora", "v5p-8", "1024x1024", 8),
    ("flux2-klein-4b", "full", "v6e-8", "1024x1024", 8),
    ("flux2-klein-9b", "lora", "v6e-8", "1024x1024", 8),
    ("flux2-dev", "lora", "v6e-8", "1024x1024", 8),
    ("flux2-dev", "lora", "v5p-8", "1024x1024", 4),
    ("wan2.1-14b", "lora", "v6e-8", "832x480x33", 8),
    ("wan2.1-14b", "lora", "v5p-8", "832x480x33", 4),
    ("wan2.1-14b", "full", "v5p-8", "832x480x33", 4),
    ("wan2.1-1.3b", "full", "v6e-8", "832x480x33", 8),
)
_COLUMNS = (
    "model",
    "what learns",
    "machine",
    "batch",
    "size",
    "remat",
    "a chip",
    "a step",
    f"{STEPS} steps",
    "compiled",
)


def list_trainings() -> list[TrainingQuestion]:
    """Lists the trainings of the page."""
    return [
        TrainingQuestion(
            model=model,
            kind=kind,
            topology=topology,
            shape=shape,
            batch_size=batch_size,
            rank=_RANK if kind == "lora" else 0,
        )
        for model, kind, topology, shape, batch_size in _ROWS
    ]


def write_page(file: Path, *, command: str) -> str:
    """Returns the page made of the answers in the file; `command` is the command that makes both."""
    page = [
        "# Plans of trainings",
        "",
        "Estimates by the TPU compiler, from configs alone; nothing was run on a TPU. A step is forward, backward and",
        "the optimizer, on embeddings and latents that were prepared before. Bytes are those of one chip: weights,",
        "optimizer, what is kept for the gradient, and code. *Remat* is",
        "[what is computed twice](planning.md#plans-of-trainings). Dollars are for a list price. Compiling is counted",
        "in seconds by the clock of the machine that made this page, which had other work. Attention is counted at the",
        "share of a chip's peak that the schedule of its kernels gives: on v6e 56 % forward, 58 to 67 % backward by",
        "tile, on v5p 95 %. So are convolutions: at 56 % on v6e, and at 89 % on v5p (80 with fewer than 320 outputs).",
        "Their gradients by the weight are counted at 63 % on v6e, and are XLA's own on v5p. A product with a part",
        "of a gather in it counts at least as long as memory takes. Made by",
        "",
        "```bash",
        command,
        "```",
        "",
        *(f"| {' | '.join(cells)} |" for cells in (_COLUMNS, ["---"] * len(_COLUMNS))),
    ]
    known = TOPOLOGIES | SLICES
    for question in list_trainings():
        cells = _summarise(question, find(file, question), known)
        page.append(f"| {' | '.join(cells)} |")
    return "\n".join(page) + "\n"


def _summarise(
    question: TrainingQuestion, answer: TrainingAnswer | None, known: Mapping[str, Topology]
) -> Sequence[str]:
    what = f"LoRA, rank {question.rank}" if question.kind == "lora" else "all weights"
    cells = [question.model, what, question.topology, str(question.batch_size), question.shape]
    if answer is None:
        return [*cells, *["-"] * 4, "not yet"]
    topology = known[question.topology]
    compiled = f"{answer.day}, {answer.answer.compile_s:.0f} s"
    gigabytes = f"{answer.hbm_bytes()['total'] / 1e9:.1f} GB"
    if not answer.fits(topology) or answer.step_s is None or topology.chip is None:
        return [*cells, answer.remat, f"does not fit ({gigabytes})", "-", "-", compiled]
    dollars = count_dollars(answer, topology, steps=STEPS, chip_price=topology.chip.hourly_price)
    price = f"{count_hours(answer, STEPS):.2g} h" + ("" if dollars is None else f", {dollars:.2f} $")
    return [*cells, answer.remat, gigabytes, f"{answer.step_s:.3g} s", price, compiled]
