"""The interface of a loaded model: encode, denoise, decode.

`generate.py` and the studio's worker see only this Protocol; each family and `fake` (numpy only, for page tests)
implement it. Importable without jax, so arrays are typed as `Any` here: they stay on the devices until `decode`
returns.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pipelines.messages import Message
from pipelines.models.catalog import Model, Shape
from pipelines.pictures.references import References
from pipelines.recipes.recipe import Lora, Recipe

# In the order of a job, except that it may encode while other programs still compile. These words are shown to people
# and streamed unchanged.
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

TRAINING_PHASES = ("prior", "preparing", "training", "sampling")
"""The phases that only a training has: pictures are made so as not to forget, rows, then weights are updated, and
pictures show what was learnt."""

STEP_PHASES = ("denoising", "training")
"""The phases that count the steps of a job."""

STAGES = ("encode", "denoise", "decode")

Embeddings = Mapping[str, Any]
"""Stage files' names -> arrays: `prompt_embeds`, `pooled_prompt_embeds`, and both with the prefix `negative_`."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of the work: `done` of `total` in the phase's own unit (steps, files, bytes).

    `draw_preview()` returns the current picture as uint8 (B, height, width, 3) at about latent size, or a few frames of
    the video (B, F, height, width, 3). It runs one small device program, so callers ask at most about twice a second.
    """

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""
    draw_preview: Callable[[], np.ndarray] | None = None


OnProgress = Callable[[Progress], None]
"""Called between chunks and at phase changes; may raise `Cancelled`, which ends the work there."""


def ignore_progress(_progress: Progress) -> None:
    """Does nothing: the OnProgress of callers that show no progress."""


class PhaseWatch:
    """An OnProgress that passes each call on and adds up how long each phase lasts."""

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
        """Switches to a phase without calling the inner OnProgress."""
        now_s = self._clock()
        self._seconds[self._phase] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s

    def stop(self) -> Mapping[str, float]:
        """Returns phase -> seconds up to now; the time before the first phase is under ""."""
        self.enter("")
        return self._seconds


@dataclass(frozen=True, kw_only=True)
class SwapCost:
    """Seconds of a swap from one model to the next, in consecutive parts that do not overlap.

    `find_s` finds the files, downloading included; `load_s` builds the modules; `shard_s` reads the weights, each
    device its own slices. Programs took `cache_s` if all of them came from the cache, else `compile_s`.
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
    """Seconds per phase, filled during the work; `step_ms` is the mean of one denoising step that was computed.

    `swap` is the cost of loading the model, None if it was already loaded.
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
    """The result of a generation: uint8 pixels, seconds, the number of compiled programs, and the weights' revision.

    Pixels are (B, height, width, 3), or (B, F, height, width, 3) for video. `broken` lists the outputs whose values are
    no numbers (finite.py); they must not be saved. `notes` say what was left out or guessed.
    """

    pixels: np.ndarray
    timings: Timings
    compiles: int
    revision: str
    broken: tuple[int, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Message, ...] = ()


class Family(Protocol):
    """One loaded model. All recipes passed to it are resolved."""

    model: Model
    load_s: float
    revision: str
    """The weights' revision: the hub's commit, or a fingerprint of a folder (`local-...`); "" without weights."""
    mesh: str
    """The mesh, such as `dp=2,sp=4`; "" without devices."""
    host_ms_per_chunk: float
    """The host's own work in the last denoise, without waiting for the devices."""
    outputs_at_once: int
    """How many outputs a run makes in the time of one: more than 1 if devices make outputs of their own."""

    def warm(
        self,
        shape: Shape,
        *,
        batch_size: int,
        uses_cfg: bool,
        references: References | None = None,
        text_chunks: int = 1,
        cache_kind: str = "",
        stage: str | None = None,
        on_progress: OnProgress,
    ) -> float:
        """Compiles, or reads from the cache or a pack, every program this shape needs; returns the seconds it took.

        With a `stage` it returns once that stage can run; the other programs continue in the background, and a call
        without `stage` waits for them.

        It calls `on_progress` often enough that Cancelled ends the waiting at once; running compilations are not lost.
        """
        ...

    def count_compiling(self) -> int:
        """Counts the programs being compiled right now, in the background too."""
        ...

    def shape_state(
        self,
        shape: Shape,
        references: References | None = None,
        text_chunks: int = 1,
        *,
        batch_size: int = 1,
        uses_cfg: bool | None = None,
        cache_kind: str = "",
    ) -> str:
        """Returns `warm` (in memory), `disk` (in the compilation cache or a pack) or `cold` (must be compiled).

        With `uses_cfg` None the model's default guidance scale decides.
        """
        ...

    def apply_loras(self, loras: Sequence[Lora], *, on_progress: OnProgress) -> Sequence[Message]:
        """Makes the weights the checkpoint's with exactly these LoRAs merged in; compiles nothing.

        Returns notes for people: what of the files was left out, and what of their scales was read from headers.
        Raises ModelError for a LoRA that is gone or does not fit, and the weights stay as they were. If `on_progress`
        raises Cancelled, or reading fails, the weights must not be used before the next call, which repairs them.
        """
        ...

    def encode(self, recipe: Recipe, *, on_progress: OnProgress = ignore_progress) -> Embeddings:
        """Returns the prompt's embeddings; calls `on_progress` while it waits for another machine."""
        ...

    def count_text_chunks(self, recipe: Recipe) -> int:
        """Returns how many encoder lengths the recipe's prompts take (`Traits.text_chunks`): programs depend on it."""
        ...

    def denoise(
        self, recipe: Recipe, embeddings: Embeddings, *, seeds: Sequence[int] | None = None, on_progress: OnProgress
    ) -> Any:
        """Returns latents on the devices, (B, C, H, W) or video (B, C, T, H, W); raises Cancelled if on_progress does.

        The embeddings have one row for all outputs or one for each; `seeds`, one per output, replace the recipe's own.
        """
        ...

    def decode(self, recipe: Recipe, latents_BCHW: Any) -> np.ndarray:
        """Returns pixels as uint8 (B, height, width, 3), or (B, F, height, width, 3) for video."""
        ...

    def embedding_shapes(self, text_chunks: int = 1) -> dict[str, tuple[int, ...]]:
        """Maps name -> shape of the embeddings that `denoise` takes; stage files are checked against it."""
        ...

    def latents_shape(self, shape: Shape) -> tuple[int, ...]:
        """Returns the shape of one output's latents, without the batch."""
        ...

    def compile_count(self) -> int:
        """Counts the programs compiled by this process so far; a job's own count is the difference."""
        ...

    def unload(self) -> None:
        """Frees every device array of the model, which cannot be used afterwards."""
        ...
