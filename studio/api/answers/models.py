"""Response models of models' files: where they are, downloads, the hub's token, the default."""

from studio.api.answers.answer import Answer, Said, eg, said


class DownloadState(Answer):
    """`state` is `waiting`, `running`, `paused`, `done` or `failed`."""

    state: str = eg("running")
    done_bytes: int = eg(2_411_724_800)
    total_bytes: int = eg(6_938_000_000)
    error: str = eg("")
    error_said: Said | None = said()


class Arrival(DownloadState):
    """A file on its way: `kind` is `model` or `lora`; `made` is the id of the model, or the name of the LoRA, it is."""

    id: str = eg("model:e5152fef37b4")
    kind: str = eg("model")
    title: str = eg("https://civitai.com/api/download/models/290640")
    made: str | None = eg(None)


class Arrivals(Answer):
    arrivals: list[Arrival]


class Fit(Answer):
    """An estimate by the plan that ships for the model's default size: bytes of a chip, and what it has.

    `weights` are the plan's: `full` also for a model in `int8` or `w8a8` for which none ships, and which takes less.
    """

    fits: bool = eg(True)
    topology: str = eg("v6e-8")
    needed_bytes: int = eg(9_212_000_000)
    chip_bytes: int = eg(33_550_000_000)
    weights: str = eg("full")
    note: str = eg("Fits v6e-8.")
    note_said: Said | None = said()


class ModelFile(Answer):
    """`origin` is `hub`, `file`, `folder` or `demo`; `url` is its page, or where it came from.

    `partial_bytes` came of a stopped download. `weights` says how they lie on the chips: `full`, `int8` or `w8a8`.
    """

    id: str = eg("sdxl-base")
    title: str = eg("Stable Diffusion XL 1.0")
    licence: str = eg("CreativeML Open RAIL++-M")
    origin: str = eg("hub")
    repo: str | None = eg("stabilityai/stable-diffusion-xl-base-1.0")
    revision: str | None = eg("462165984030d82259a11f4367a4eed129e94a7b")
    url: str | None = eg("https://huggingface.co/stabilityai/stable-diffusion-xl-base-1.0")
    is_here: bool = eg(True)
    is_resident: bool = eg(False)
    disk_bytes: int = eg(6_938_000_000)
    partial_bytes: int = eg(0)
    is_own: bool = eg(False)
    weights: str = eg("full")
    fit: Fit | None
    download: DownloadState | None


class ModelFiles(Answer):
    """`default` is an admin's choice, before which `fixed_default`, that of `--model`, comes.

    `token` tells whose token the hub is asked with: `studio`, `environment` (HF_TOKEN or a login), or "" for none.
    """

    models: list[ModelFile]
    arrivals: list[Arrival]
    default: str | None = eg(None)
    fixed_default: str | None = eg(None)
    token: str = eg("environment")
    free_bytes: int = eg(412_000_000_000)
    models_dir: str = eg("/home/me/lumesh/models")


class Access(Answer):
    is_gated: bool | None = eg(True)
    is_granted: bool | None = eg(False)


class AddedModel(Answer):
    id: str = eg("my-finetune")


class Freed(Answer):
    bytes: int = eg(6_938_000_000)


class DefaultModel(Answer):
    default: str | None = eg("sdxl-base")


class TokenOrigin(Answer):
    token: str = eg("studio")
