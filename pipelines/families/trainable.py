"""The interface that a family's `training.py` implements, so that its models can be trained.

A training runs the family's own programs for prompts and pictures once, keeps what they return as rows, and then calls
the unmodified denoiser on batches of rows. Only registry.py knows where a family's `LEARNER` is. Arrays and modules
are `Any` here, so that this file can be imported without jax.
Not here: losses, optimizers and files (pipelines/training).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines.loras.file_names import FileNames
from pipelines.models.catalog import Model, Shape
from pipelines.stages import Embeddings

Rows = Mapping[str, Any]
"""Name -> array, of one picture without a batch axis, or of a batch."""


@dataclass(frozen=True, kw_only=True)
class Denoiser:
    """A module that learns: its `component` in the checkpoint, and the share of the noise that it takes away.

    `low` and `high` bound its sigmas.
    """

    component: str
    low: float = 0.0
    high: float = 1.0
    ending: str = ""
    """What its LoRA's file name ends in, such as `_high_noise`."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The widths of a linear layer's pieces: of its outputs, or else of its inputs."""

    outputs: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()


class Learner(Protocol):
    """The code with which a family learns."""

    process: str
    """`diffusion` for discrete timesteps, or `flow`."""
    spread: str
    """How a flow model's sigmas are spread by default."""
    snr_gamma: float
    """The default min-SNR weighting of a diffusion model; 0 for none."""
    timestep_scale: float
    """What a flow model's timestep is at a sigma of 1."""
    size_multiple: int
    """Sides of pictures are multiples of this, in pixels, where a checkpoint says nothing else."""
    prefix: str
    """What diffusers' names in a LoRA file begin with; of both experts the same."""
    vmem_share: float
    """The share of vector memory that a TPU gives the step's products (compiler_options.py); 0 for the usual."""
    vmem_share_of_all: float
    """The same where all weights learn."""
    remat_of_all: str
    """The `remat` that `auto` begins with on a TPU where all weights learn: the quickest (plan/TRIED.md)."""
    compact_vmem_bytes: int | None
    """A limit of it that keeps the step's code short, or None."""
    gathers_adapters: bool
    """Whether a LoRA's weights are gathered before its layers run, and not layer by layer (plan/TRIED.md)."""
    exchanged_apart: Collection[str]
    """The kinds of trainings, `lora` or `full`, whose split weights SparseCores gather, and scatter the gradients of.

    Without them weights are gathered within products, best within a LoRA's small ones (plan/TRIED.md).
    """
    gathered_apart: Collection[str]
    """The kinds of trainings whose weights are gathered apart from products, not within them (plan/TRIED.md)."""
    sums_apart: bool
    """Whether what goes back into a layer norm is summed up apart from the product that made it (kernels/norms.py)."""

    def list_denoisers(self, folder: Path, scheduler_config: Mapping[str, Any]) -> tuple[Denoiser, ...]:
        """Lists the modules that can learn, in the order in which they denoise."""
        ...

    def check(self, folder: Path) -> None:
        """Raises ModelError for a checkpoint that is not trained here, by its configs alone."""
        ...

    def find_size_multiple(self, folder: Path) -> int:
        """Returns what the sides of pictures are multiples of, in pixels, by a checkpoint's configs."""
        ...

    def build_denoiser(self, folder: Path, component: str) -> Any:
        """Builds the torch module from its config, with parameters on the meta device and layers not yet stacked."""
        ...

    def stack_layers(self, module: Any, mesh: Any) -> None:
        """Turns long lists of layers into scans."""
        ...

    def name_for_all(self, learned: Collection[str], layers: Collection[str]) -> FileNames:
        """Names the layers that learnt as diffusers, ComfyUI and our own reader all read them, whole.

        `layers` are all of the module, named as in checkpoints.
        """
        ...

    def name_for_kohya(self, learned: Collection[str], layers: Collection[str]) -> FileNames:
        """Names them as kohya's trainer of these models does."""
        ...

    def describe_base(self, folder: Path, scheduler_config: Mapping[str, Any]) -> Mapping[str, str]:
        """Returns what the header of a LoRA file says of the model, in the words of kohya's trainers and ModelSpec.

        Programs sort LoRAs by it; without it, A1111 and Forge take any for one of Stable Diffusion 1.
        """
        ...

    def list_cuts(self, module: Any) -> Mapping[str, Cut]:
        """Names the linear layers whose product is taken apart at once, or made of what was put together for it."""
        ...

    def find_shift(self, model: Model, folder: Path, shape: Shape) -> float:
        """Returns how far a flow model's sigmas are shifted for pictures of this size."""
        ...

    def build_autoencoder(self, folder: Path) -> Any:
        """Builds the autoencoder as a traced module without weights."""
        ...

    def choose_autoencoder_dtype(self, autoencoder: Any, dtype: Any) -> Any:
        """Returns what the autoencoder computes in, where large modules do in `dtype`."""
        ...

    def build_latents_program(self, autoencoder: Any, weights: Rows, mesh: Any, shape: Shape) -> Any:
        """Returns the Program that encodes pixels (1, 3, [F,] height, width) fp32 in [-1, 1] to one row's latents.

        They are `latents`, or `mean` and `deviation` to draw them from; with a batch axis of 1.
        """
        ...

    def describe_rows(self, parts: Any, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of one picture's rows, without a batch axis, from the model's described `Parts` alone."""
        ...

    def take_text(self, parts: Any, embeddings: Embeddings, *, is_empty: bool) -> Rows:
        """Returns the rows of a prompt, without a batch axis; those of an empty one as guidance has them.

        Of a prompt longer than the text encoder reads at once, only its beginning.
        """
        ...

    def write_prompt(self, caption: str) -> str:
        """Returns the prompt that is read as just this caption, with no sign of it taken for a weight."""
        ...

    def describe_cut(self, sizes: tuple[int, int, int, int, int, int]) -> Rows:
        """Returns further rows that tell the model of a picture's size and cut, in pixels.

        `sizes` are its own height and width, top and left of the cut in the scaled picture, and height and width now.
        """
        ...

    def predict(self, call: Callable[..., Any], noisy: Any, timesteps: Any, rows: Rows, dtype: Any) -> Any:
        """Returns the denoiser's prediction for a batch; `call(...)` runs the module with its weights."""
        ...


class FlowLearner:
    """What most flow transformers answer as learners; a family's own class has the rest, and what differs."""

    process = "flow"
    spread = "logit_normal"
    snr_gamma = 0.0
    timestep_scale = 1.0
    size_multiple = 32
    prefix = "transformer"
    vmem_share = 0.0
    vmem_share_of_all = 0.0
    remat_of_all = "layers"
    compact_vmem_bytes: int | None = None
    gathers_adapters = False
    exchanged_apart: Collection[str] = ("full",)
    gathered_apart: Collection[str] = ()
    sums_apart = False

    def list_denoisers(self, folder: Path, scheduler_config: Mapping[str, Any]) -> tuple[Denoiser, ...]:  # noqa: ARG002
        """See `Learner`."""
        return (Denoiser(component="transformer"),)

    def check(self, folder: Path) -> None:
        """See `Learner`."""

    def find_size_multiple(self, folder: Path) -> int:  # noqa: ARG002
        """See `Learner`."""
        return self.size_multiple

    def list_cuts(self, module: Any) -> Mapping[str, Cut]:  # noqa: ARG002
        """See `Learner`."""
        return {}

    def choose_autoencoder_dtype(self, autoencoder: Any, dtype: Any) -> Any:  # noqa: ARG002
        """See `Learner`."""
        return dtype

    def write_prompt(self, caption: str) -> str:
        """See `Learner`."""
        return caption

    def describe_cut(self, sizes: tuple[int, int, int, int, int, int]) -> Rows:  # noqa: ARG002
        """See `Learner`."""
        return {}
