"""What a family of models must offer: encode, denoise, decode.

`generate.py` and the studio's worker see only this Protocol; each family and `fake` (numpy only, for page tests)
implement it. Importable without jax, so arrays are typed as `Any` here: they live on the devices until `decode`
returns.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pipelines.catalog import Model, Shape
from pipelines.recipe import Lora, Recipe
from pipelines.references import References

# In the order in which a job passes them; it may encode while other programs still compile. The words are shown to
# people and streamed as they are.
PHASES = (
    "unloading",
    "downloading",
    "loading",
    "sharding",
    "compiling",
    "encoding",
    "denoising",
    "decoding",
    "saving",
)

STAGES = ("encode", "denoise", "decode")

Embeddings = Mapping[str, Any]
"""Names as in the stage files: `prompt_embeds`, `pooled_prompt_embeds`, and their `negative_` twins."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where the work stands. `done` of `total` in the phase's own unit (steps, files, bytes).

    `draw_preview()` gives the picture so far as uint8 (B, height, width, 3) at about latent size, a video as a few
    frames of it (B, F, height, width, 3); it is cheap but costs one small device program, so callers ask at most about
    twice a second.
    """

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""
    draw_preview: Callable[[], np.ndarray] | None = None


OnProgress = Callable[[Progress], None]
"""Called between chunks and at phase changes; may raise `Cancelled`, which ends the work there."""


def ignore_progress(_progress: Progress) -> None:
    """The OnProgress of callers who do not watch."""


class PhaseWatch:
    """An OnProgress that passes on what it is told and adds up how long each phase lasts."""

    def __init__(
        self, on_progress: OnProgress = ignore_progress, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._on_progress = on_progress
        self._clock = clock
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._phase, self._since_s = "", clock()

    def __call__(self, progress: Progress) -> None:
        self.enter(progress.phase)
        self._on_progress(progress)

    def enter(self, phase: str) -> None:
        """From now on it is this phase, which nobody is told."""
        now_s = self._clock()
        self._seconds[self._phase] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s

    def stop(self) -> Mapping[str, float]:
        """Phase -> seconds, up to now; what was before the first one has no name."""
        self.enter("")
        return self._seconds


@dataclass(frozen=True, kw_only=True)
class SwapCost:
    """Seconds that it takes to go from one model to the next: parts that follow one another, nothing twice.

    `find_s` makes sure that the files are here, downloading included; `load_s` builds the modules, `shard_s` reads the
    weights, each device its own slices. Programs were compiled in `compile_s`, with what the cache had of them, or all
    of them were read in `cache_s`.
    """

    unload_s: float = 0.0
    find_s: float = 0.0
    load_s: float = 0.0
    shard_s: float = 0.0
    compile_s: float = 0.0
    cache_s: float = 0.0

    @property
    def total_s(self) -> float:
        return sum(vars(self).values())

    def to_json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in {**vars(self), "total_s": self.total_s}.items()}


@dataclass(kw_only=True)
class Timings:
    """Seconds per phase, filled as the work goes; `step_ms` is the mean of one denoising step.

    `swap` is what it cost to bring the model here; None where it was here already.
    """

    load_s: float = 0.0
    compile_s: float = 0.0
    encode_s: float = 0.0
    denoise_s: float = 0.0
    step_ms: float = 0.0
    decode_s: float = 0.0
    total_s: float = 0.0
    swap: SwapCost | None = None

    def to_json(self) -> dict[str, Any]:
        seconds = {name: round(value, 4) for name, value in vars(self).items() if name != "swap"}
        return seconds if self.swap is None else {**seconds, "swap": self.swap.to_json()}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a generation gave: uint8 pixels, seconds, how many programs were compiled, and the weights' revision.

    Pixels are (B, height, width, 3), those of video (B, F, height, width, 3).
    """

    pixels: np.ndarray
    timings: Timings
    compiles: int
    revision: str
    facts: dict[str, Any] = field(default_factory=dict)


class Family(Protocol):
    """One loaded model. All recipes passed in are resolved ones."""

    model: Model
    load_s: float
    revision: str
    """Which weights these are: the hub's commit, or a fingerprint of a folder (`local-...`); "" when there are none."""
    mesh: str
    """How its devices share the work, such as `dp=2,sp=4`; "" when there are none."""
    host_ms_per_chunk: float
    """Of the last denoise: the host's own work, waiting for the devices left out."""
    outputs_at_once: int
    """How many outputs a run makes in the time of one: more than 1 where devices make outputs of their own."""

    def warm(
        self,
        shape: Shape,
        *,
        batch_size: int,
        uses_cfg: bool,
        references: References | None = None,
        stage: str | None = None,
        on_progress: OnProgress,
    ) -> float:
        """Compiles, or reads from the cache or a pack, every program this shape needs; returns the seconds it took.

        With a `stage` it returns when that one may run; the other programs go on, and a call without waits for them.

        Calls `on_progress` often enough that Cancelled ends the waiting at once; what is being compiled is not lost.
        """
        ...

    def count_compiling(self) -> int:
        """Programs that are being compiled right now, in the background too."""
        ...

    def shape_state(
        self, shape: Shape, references: References | None = None, *, batch_size: int = 1, uses_cfg: bool | None = None
    ) -> str:
        """`warm` (in memory), `disk` (in the compilation cache or a pack) or `cold` (must be compiled).

        `uses_cfg` None is as with the model's own guidance.
        """
        ...

    def apply_loras(self, loras: Sequence[Lora], *, on_progress: OnProgress) -> None:
        """From now on the weights are the checkpoint's with just these merged in; compiles nothing.

        Raises ModelError for one that is gone or does not fit, and the weights stay as they were. When `on_progress`
        raises Cancelled, or reading fails, they are not to be used before the next call, which puts them right.
        """
        ...

    def encode(self, recipe: Recipe, *, on_progress: OnProgress = ignore_progress) -> Embeddings:
        """Calls `on_progress` while another machine is waited for."""
        ...

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> Any:
        """Latents (B, C, H, W) on the devices, of video (B, C, T, H, W); raises Cancelled when on_progress does.

        The embeddings have one row for all outputs or one for each; `seeds` are those of the outputs where they are not
        the recipe's own.
        """
        ...

    def decode(self, recipe: Recipe, latents_BCHW: Any) -> np.ndarray:
        """uint8 (B, height, width, 3), of video (B, F, height, width, 3)."""
        ...

    def embedding_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of the embeddings that `denoise` takes; stage files are checked against it."""
        ...

    def latents_shape(self, shape: Shape) -> tuple[int, ...]:
        """Shape of one output's latents, without the batch."""
        ...

    def compile_count(self) -> int:
        """Programs compiled by this process so far; a job's own count is the difference."""
        ...

    def unload(self) -> None:
        """Frees every device array of the model; the object is not usable afterwards."""
        ...
