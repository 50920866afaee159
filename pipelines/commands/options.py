"""Options that several commands share, and the data directory. Not here: what they come to (asked.py)."""

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import platformdirs
import typer

from pipelines.errors import RecipeError
from pipelines.mesh_text import check_mesh
from pipelines.messages import english
from pipelines.models.catalog import Catalog, read_data_dir
from pipelines.models.model import WEIGHTS
from pipelines.models.own_models import UNWEIGHTED
from pipelines.pictures.fitting import Fit
from pipelines.runtime.kernels import switches
from pipelines.runtime.weights.hub_pins import PINS_FILE, use_pins_file
from pipelines.runtime.weights.hub_token import TOKEN_FILE, use_token_file

DataDir = Annotated[
    Path,
    typer.Option(
        envvar="LUMESH_DATA_DIR",
        help="Models, compilation cache and outputs.",
        show_default="the system's folder for application data",
    ),
]
MAX_TEXT_LENGTH = 1024  # tokens
DATA_DIR = platformdirs.user_data_path("lumesh")

ModelId = Annotated[str, typer.Option("--model", "--model-id", help="A model of the catalogue; `models` lists them.")]
Prompt = Annotated[str, typer.Option(help="What the picture shows.")]
NegativePrompt = Annotated[str | None, typer.Option(help="What it must not show.")]
ShapeText = Annotated[str | None, typer.Option(help="WIDTHxHEIGHT[xFRAMES], one of the model's shapes.")]
Height = Annotated[int | None, typer.Option(help="Pixels, instead of --shape; the model's default when left out.")]
Width = Annotated[int | None, typer.Option(help="Pixels, instead of --shape; the model's default when left out.")]
Frames = Annotated[int | None, typer.Option(help="Of a video, 4n+1; the model's default when left out.")]
FlowShift = Annotated[float | None, typer.Option(help="Moves the steps of flow models towards the noise.")]
Fps = Annotated[int | None, typer.Option(help="Frames a second of a video.")]
Steps = Annotated[int | None, typer.Option(help="Denoising steps.")]
GuidanceScale = Annotated[float | None, typer.Option(help="Classifier-free guidance; 1 or less turns it off.")]
GuidanceScale2 = Annotated[float | None, typer.Option(help="Of a second expert; the first one's when left out.")]
Scheduler = Annotated[str | None, typer.Option(help="One of the model's schedulers; `models --json` lists them.")]
SigmasText = Annotated[
    str | None,
    typer.Option(
        "--sigmas",
        metavar="1000,937.5,833.3,625",
        help="The steps' noise levels, in place of their number: sigmas, or of a flow model also timesteps.",
        show_default=False,
    ),
]
StepCacheText = Annotated[
    str | None,
    typer.Option(
        "--step-cache",
        metavar="off|mild|strong|THRESHOLD,MOST[,RETENTION]|taylor[,INTERVAL[,FIRST]]",
        help="Lets later steps reuse what earlier ones computed: faster, and nearly the same picture.",
        show_default="off",
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Same seed, same picture (as in diffusers); drawn when left out, and for -1.")
]
BatchSize = Annotated[int, typer.Option(help="Pictures at once, with seeds seed, seed+1, ...")]
MeshText = Annotated[
    str | None,
    typer.Option(
        callback=check_mesh,
        help="Devices per axis, such as dp=2,sp=4; `throughput` for an output a chip; chosen for one when left out.",
    ),
]
TextEncoderUrl = Annotated[
    str | None,
    typer.Option(
        "--text-encoder-url",
        "--remote-url",
        help="Let another machine read the prompt: http://host:port of an encoder-server, or a public FLUX.2 encoder.",
    ),
]
TextEncoderToken = Annotated[
    str | None, typer.Option(envvar="LUMESH_TEXT_ENCODER_TOKEN", help="Bearer token for --text_encoder_url.")
]
RemoteEncoder = Annotated[
    bool, typer.Option("--remote-encoder", help="Says that --remote_url is meant; for scripts that pass both.")
]
Images = Annotated[
    list[Path] | None,
    typer.Option(
        "--image", help="Picture to start from or to refer to; give it again for more, where a model takes more."
    ),
]
Strength = Annotated[
    float | None,
    typer.Option(
        help="With --image where a model starts from it: how much is made anew, up to 1 for nearly all of it."
    ),
]
FitText = Annotated[
    Fit | None,
    typer.Option(
        "--fit",
        help="With --image of other proportions: crop its middle, pad it with black bars, or stretch it.",
        show_default="crop",
    ),
]
Loras = Annotated[
    list[str] | None,
    typer.Option(
        "--lora",
        metavar="REF[:SCALE][@high|@low|@both]",
        help="LoRA of the data directory's loras folder, a .safetensors file, or a folder saved by peft; give it again "
        "for more. A scale of 0 leaves it out. Of a model with two experts @high and @low name the one it changes.",
    ),
]
PackPaths = Annotated[
    list[Path] | None,
    typer.Option(
        "--pack",
        envvar="LUMESH_PACKS",
        exists=True,
        help="Compiled programs to load, or a folder of such packs; packs/ in the data directory is always looked "
        "into. A pack is code: use only those you trust.",
    ),
]
VerifyWeights = Annotated[
    bool,
    typer.Option(
        "--verify-weights", help="Compare the weights' SHA-256 with the hub's or with the folder's SHA256SUMS."
    ),
]
KeepLayouts = Annotated[
    bool,
    typer.Option(
        "--keep-layouts",
        help="Keep a copy of the weights as they lie on the mesh: the next load reads that, half the bytes of a "
        "checkpoint in fp32.",
    ),
]


def _check_weights(text: str | None) -> str | None:
    if text is not None and text not in WEIGHTS:
        raise RecipeError({"weights": english(f"{text!r} is not known; allowed: {', '.join(WEIGHTS)}")})
    return text


Weights = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(WEIGHTS),
        callback=_check_weights,
        help="int8 rounds the large matrices of transformers, UNets and language models while they are read: half the "
        "memory, and pictures that differ a little. w8a8 rounds also what denoisers multiply with them: faster on v5e "
        "and v5p, slower on v6e. full leaves all as the model computes. Left out, it is the model's own: full, unless "
        "models.toml says otherwise.",
    ),
]
MaxSequenceLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_TEXT_LENGTH,
        help="Tokens of the prompt, padding included, for Wan and FLUX.2; 512 when left out, as in diffusers. Another "
        "number makes another picture.",
    ),
]
WindowSize = Annotated[
    int | None,
    typer.Option(min=1, help="For Wan: a token of the video sees only so many tokens before and behind it."),
]
SmoothsKeys = Annotated[
    bool, typer.Option("--use-k-smooth", help="For Wan: subtract the keys' mean before they are rounded to bf16.")
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        help="Of several hosts: HOST:PORT on the first one. A TPU pod finds it by itself.", show_default=False
    ),
]
Processes = Annotated[int | None, typer.Option(min=1, help="How many hosts work together.", show_default=False)]
Process = Annotated[int | None, typer.Option(min=0, help="Which of them this is, from 0 on.", show_default=False)]
AllowCpu = Annotated[
    bool,
    typer.Option(
        "--allow-cpu",
        envvar="LUMESH_ALLOW_CPU",
        help="Run on the CPU where this machine's TPU or GPU cannot be used, for instance because another process "
        "holds it.",
    ),
]


def _choose_kernels(text: str | None) -> str | None:
    if text is not None:
        switches.choose_by_hand(text)
    return text


Kernels = Annotated[
    str | None,
    typer.Option(
        envvar="LUMESH_KERNELS",
        metavar="off|on|NAME,...|no-NAME,...",
        callback=_choose_kernels,
        help=f"Our own kernels to use, and plain XLA for the others: none, all, these, or all but these. They are "
        f"{', '.join(switches.INSTEAD)}. Left out: all that the doctor did not find bad on these chips.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts, and no progress.")]


def use_hub_files(data_dir: Path) -> None:
    """Makes this process ask the hub with the data directory's token, for the commits that are noted there."""
    use_token_file(data_dir / TOKEN_FILE)
    use_pins_file(data_dir / PINS_FILE)


@dataclass(frozen=True, kw_only=True)
class DataDirectory:
    """The data directory's parts that the command line uses."""

    data_dir: Path

    def __post_init__(self) -> None:
        use_hub_files(self.data_dir)

    @property
    def cache_dir(self) -> Path:
        return self.data_dir / "cache" / "jax"

    @property
    def plan_cache_dir(self) -> Path:
        """Returns the cache of compilers' answers about programs for other machines."""
        return self.data_dir / "cache" / "plan"

    @property
    def packs_dir(self) -> Path:
        return self.data_dir / "packs"

    def list_packs(self, given: Sequence[Path] | None) -> list[Path]:
        """Lists files and folders that may hold compiled programs."""
        return [*(given or ()), *([self.packs_dir] if self.packs_dir.is_dir() else [])]

    @property
    def catalog(self) -> Catalog:
        """Returns its catalogue, with models that lack weights: that is said where they are needed.

        Without a tokenizer or a scheduler no stage runs, and no plan is made.
        """
        return read_data_dir(self.data_dir).with_partial(lambda _model, lacking: not {*UNWEIGHTED} & {*lacking})


def read_topology(name: str) -> str:
    """Returns a machine's name here: what the cloud lists as `v5litepod-8` is a v5e-8."""
    return name.replace("v5litepod-", "v5e-")


def make_folder(option: str, folder: Path) -> None:
    """Makes a folder that is written to after minutes of work; raises RecipeError if that cannot work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError({option: english(f"{folder} cannot be a folder to write to: {error.strerror}")}) from error
    if not os.access(folder, os.W_OK):
        raise RecipeError({option: english(f"{folder} may not be written")})


def try_folder(option: str, folder: Path) -> None:
    """Raises RecipeError if a folder cannot be made or written to; leaves everything as it was."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        make_folder(option, folder)
    finally:
        for place in missing:
            with contextlib.suppress(OSError):
                place.rmdir()


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value))
