"""Response models of outputs, uploads, LoRAs, presets, and recipes read from files."""

from typing import Any

from pipelines.recipes.recipe import Recipe
from studio.api.answers.answer import Answer, Said, eg, said
from studio.api.answers.jobs import JOB, NOW, RECIPE, OutputLink
from studio.jobs.many.axes import Axes
from studio.library.presets.preset import PresetRecipe

UPLOAD, PRESET = "upload-9d76dd53d0031017", "preset-92af5ec0f6c0"
SHARED = PresetRecipe.model_validate({name: getattr(RECIPE, name) for name in PresetRecipe.model_fields})


class Output(OutputLink):
    """An output as the gallery lists it. `grid` has a grid sheet's axes; `trashed_at` is set in the trash."""

    owner: str = eg("local")
    job_id: str = eg(JOB)
    recipe: Recipe = eg(RECIPE)
    created_at: float = eg(NOW)
    made_with: dict[str, str] = eg({"weights": "sha256:5f0c…", "device": "TPU v6e, 8 chips", "mesh": "dp=8"})
    favourite: bool = eg(False)
    tags: list[str] = eg(["sea"])
    trashed_at: float | None = eg(None)
    grid: dict[str, Any] | None = eg(None)
    chip_seconds: float | None = eg(1.6)
    cost_usd: float | None = eg(None)


class Outputs(Answer):
    outputs: list[Output]
    total: int = eg(1)
    start: int | None = eg(12)
    next: int | None = eg(None)


class ModelCount(Answer):
    id: str = eg("demo-sdxl")
    family: str | None = eg("sdxl")
    count: int = eg(12)


class PresetCount(Answer):
    id: str = eg("sunset")
    title: str = eg("Sunset")
    count: int = eg(4)


class Filters(Answer):
    kept: int = eg(12)
    trashed: int = eg(1)
    favourites: int = eg(3)
    models: list[ModelCount]
    shapes: dict[str, int] = eg({"256x256": 12})
    tags: dict[str, int] = eg({"sea": 2})
    presets: list[PresetCount]


class Likeness(Answer):
    same_size: bool = eg(True)
    identical: bool = eg(False)
    psnr_db: float | None = eg(31.4)


class Upload(Answer):
    id: str = eg(UPLOAD)
    url: str = eg(f"/api/v1/uploads/{UPLOAD}")
    thumb_url: str = eg(f"/api/v1/uploads/{UPLOAD}/thumb")
    width: int = eg(60)
    height: int = eg(40)
    frames: int = eg(1)
    notes: list[str] = eg([])
    notes_said: list[Said | None] | None = said()


class LoraFile(Answer):
    ref: str = eg("watercolour")
    title: str = eg("Watercolour")
    family: str = eg("sdxl")
    kind: str = eg("LoRA")
    rank: int = eg(16)
    expert: str | None = eg(None)
    size: int = eg(46_138_992)
    models: list[str] = eg(["demo-sdxl", "sdxl-base"])
    may_delete: bool = eg(True)


class UnusableLora(Answer):
    ref: str = eg("sketch")
    reason: str = eg("it is no safetensors file, or its download was cut off")
    reason_said: Said | None = said()


class Loras(Answer):
    loras: list[LoraFile]
    unusable: list[UnusableLora] = eg([])


class PresetModel(Answer):
    id: str = eg("demo-sdxl")
    title: str = eg("Postcards (demo, SDXL layout)")


class Origin(Answer):
    kind: str = eg("made")
    name: str = eg("")


class MissingModel(Answer):
    """A missing model, and how to add it."""

    model: str = eg("my-model")
    title: str = eg("My model")
    repo: str = eg("")
    advice: str = eg("Put the model, as a folder in diffusers layout, at models/my-model in the data directory.")
    advice_said: Said | None = said()


class LackingLora(Answer):
    """A LoRA that a preset names and that is not here; without a `repo` nobody says where it is."""

    ref: str = eg("sdxl_lightning_4step_lora")
    repo: str | None = eg("ByteDance/SDXL-Lightning")
    url: str | None = eg(
        "https://huggingface.co/ByteDance/SDXL-Lightning/blob/main/sdxl_lightning_4step_lora.safetensors"
    )
    licence: str = eg("OpenRAIL++")
    size_bytes: int | None = eg(393_855_224)
    advice: str = eg("It is sdxl_lightning_4step_lora.safetensors of ByteDance/SDXL-Lightning on the Hugging Face Hub.")
    advice_said: Said | None = said()


class Preset(Answer):
    """A preset as lists show it; `missing` is set when its model is not here, `lacks` names LoRAs that are not."""

    id: str = eg(PRESET)
    title: str = eg("Sunset")
    description: str = eg("")
    author: str = eg("")
    tags: list[str] = eg(["sea"])
    licence: str = eg("")
    recipe: PresetRecipe = eg(SHARED)
    model: PresetModel
    missing: MissingModel | None = eg(None)
    lacks: list[LackingLora] = eg([])
    needs_picture: bool = eg(False)
    origin: Origin
    thumb_url: str | None = eg(f"/api/v1/presets/{PRESET}/thumb")
    created_at: float | None = eg(NOW)


class Presets(Answer):
    presets: list[Preset]
    tags: dict[str, int] = eg({"sea": 9})
    models: dict[str, int] = eg({"demo-sdxl": 12})


class RefusedPreset(Answer):
    name: str = eg("broken.json")
    detail: str = eg("It is no preset of Lumesh.")
    detail_said: Said | None = said()


class ImportedPresets(Answer):
    presets: list[Preset]
    known: list[Preset] = eg([])
    refused: list[RefusedPreset] = eg([])


class Style(Answer):
    id: str = eg("photo")
    title: str = eg("Photograph")
    prompt: str = eg("Photograph of {prompt}, 35 mm lens, natural light, fine grain")
    negative_prompt: str = eg("drawing, painting, render")
    fits_demo: bool = eg(False)


class Styles(Answer):
    styles: list[Style]


class Names(Answer):
    names: list[str] = eg(["sunset.json"])


class HubAddress(Answer):
    url: str = eg("https://huggingface.co/datasets/you/lumesh-presets")


class Unusable(Answer):
    what: str = eg("Clip skip: 2")
    what_said: Said | None = said()
    why: str = eg("has no counterpart here")
    why_said: Said | None = said()


class ReadRecipe(Answer):
    """The recipe read from a file; `recipe` is null when the file carries none."""

    recipe: Recipe | None = eg(RECIPE)
    source: str | None = eg("Lumesh")
    unusable: list[Unusable] = eg([])
    notes: list[str] = eg([])
    notes_said: list[Said | None] | None = said()
    grid: Axes | None = eg(None)
