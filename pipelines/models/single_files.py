"""Which model a single file of weights is: a checkpoint of a family here, or what else, with the reason.

Everything is told from the file's header, its names, shapes and metadata, so that a file of 20 GB is known at once.
Importable without jax and torch.
Not here: a family's own rules (its traits.py), the entry that it becomes (catalog.py), its weights (runtime/weights).
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import ModelError
from pipelines.families import find_traits, list_traits, name_families
from pipelines.families.traits import FileHeader, FileLikeness, Unsupported
from pipelines.loras.files import find_family
from pipelines.messages import Message, say
from pipelines.models.weight_files import read_header

DTYPES = {
    "F64": "fp64",
    "F32": "fp32",
    "F16": "fp16",
    "BF16": "bf16",
    "F8_E4M3": "fp8 (e4m3)",
    "F8_E5M2": "fp8 (e5m2)",
    "I8": "int8",
    "U8": "uint8",
}
SECOND = "transformer_2"  # the component of a second expert
WHOLE = say(
    "A model is a folder in diffusers layout, with a model_index.json and safetensors weights, or a single file."
)
_ALONE = say("Name it as `vae` of a model in models.toml.")

_PREFIX = r"^(model\.diffusion_model\.|diffusion_model\.|transformer\.|net\.|model\.)?"

# Tensor names of single files that are no checkpoint of a family here -> what they are; of several, the first.
_OTHERS: tuple[tuple[re.Pattern[str], Message], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (
            r"^control_model\.|^(input_hint_block|controlnet_cond_embedding|controlnet_down_blocks)\.",
            say("a ControlNet"),
        ),
        (r"^control_(all_)?(layers|blocks|x_embedder)\.", say("a ControlNet")),
        (r"^(image_proj|ip_adapter)\.", say("an IP-Adapter")),
        (r"motion_modules\.", say("a motion module of AnimateDiff")),
        (r"^(emb_params|string_to_param|clip_[lg])$|^<.+>$", say("an embedding (textual inversion)")),
        (_PREFIX + r"joint_blocks\.0\.", say("a Stable Diffusion 3")),
        (_PREFIX + r"distilled_guidance_layer\.", say("a Chroma")),
        (_PREFIX + r"double_blocks\.0\.img_mod\.", say("a FLUX.1")),
        (_PREFIX + r"txt_in\.individual_token_refiner\.", say("a HunyuanVideo")),
        (_PREFIX + r"double_layers\.0\.", say("an AuraFlow")),
        (_PREFIX + r"(cap_embedder|layers\.0\.adaLN_modulation)\.", say("a Lumina")),
        (_PREFIX + r"transformer_blocks\.0\.img_mod\.", say("a Qwen-Image")),
        (_PREFIX + r"txtfusion\.", say("a Krea 2")),
        (_PREFIX + r"patchify_proj\.", say("an LTX-Video")),
        (_PREFIX + r"double_stream_blocks\.", say("a HiDream")),
        (
            _PREFIX + r"blocks\.(block)?0\.(attn\.qkv_x|cross_attn\.q_linear|block\.attn)",
            say("a Mochi, Sana or Cosmos"),
        ),
        (r"^(down_blocks\.1\.0\.channelwise|clip_txt_mapper)\.", say("a Stable Cascade")),
        (r"^(conv_first|model\.0)\.weight$", say("an upscaler")),
        (r"^(.+\.)?(encoder\.block\.0\.layer|model\.layers\.0\.(self_attn|mlp))\.", say("a text encoder alone")),
        (r"^((enc|dec)\.)?blk\.0\.", say("a text encoder alone")),
        (r"^(text_model\.|transformer\.resblocks\.|language_model\.|vision_model\.)", say("a text encoder alone")),
        (r"^(down_blocks|transformer_blocks|single_transformer_blocks)\.0\.", say("a single part in diffusers layout")),
    )
)
_VAE = re.compile(r"^(first_stage_model\.|vae\.)?(decoder|encoder)\.(conv_in|conv1|mid|middle|up|down)")


@dataclass(frozen=True, kw_only=True)
class SingleFile:
    """A single-file checkpoint of a family here. `dtype` is what most of it is stored in, for people; sizes in bytes.

    `licence` is what its metadata says, "" if nothing.
    """

    file: Path
    family: str
    likeness: FileLikeness
    dtype: str
    size_bytes: int
    licence: str
    header: FileHeader

    def find_base(self, candidates: Iterable[tuple[str, Path]]) -> str:
        """Returns which of the models (id, folder of configs) the file has the layers of, the likeliest first.

        Raises ModelError if it is like none.
        """
        fits_file = find_traits(self.family).fits_file
        fitting = [model_id for model_id, folder in candidates if fits_file(self.header, folder)]
        if not fitting:
            raise ModelError(
                say(
                    "Its layers are those of no {family} here: it is pruned, or distilled to fewer layers.",
                    family=find_traits(self.family).title,
                ),
                advice=say("Use a checkpoint for {families}.", families=name_families()),
            )
        return next((one for one in self.likeness.model_ids if one in fitting), fitting[0])

    def list_lacking(self, configs: Path, weighted: Iterable[str], *, has_second: bool = False) -> list[str]:
        """Lists the components with weights that the configs have and the file, or a second expert's, has not."""
        held = self.likeness.components | ({SECOND} if has_second else set())
        return [one for one in weighted if (configs / one).is_dir() and one not in held]


def name_dtype(dtype: str) -> str:
    """Returns what people call a precision in a file's header; quantised ones have ggml's names."""
    return DTYPES.get(dtype, f"{dtype} (GGUF)" if dtype else "")


def recognise_file(file: Path) -> SingleFile:
    """Reads a safetensors or GGUF file's header.

    Raises ModelError saying what it is if no code here runs it, and OSError.
    """
    status = file.stat()
    found = _recognise(file, status.st_mtime_ns, status.st_size)
    if isinstance(found, ModelError):
        raise found
    return found


@functools.lru_cache(maxsize=512)
def _recognise(file: Path, _mtime_ns: int, size_bytes: int) -> SingleFile | ModelError:
    try:
        entries, _ = read_header(file)
        header = _read_names(file, entries)
        if find_family(header.shapes) is not None:
            return ModelError(
                say("It is a LoRA, not a model."), advice=say("Put it into the loras folder of the data directory.")
            )
        for family, traits in list_traits():
            if (likeness := traits.read_file(header)) is not None:
                return SingleFile(
                    file=file,
                    family=family,
                    likeness=likeness,
                    dtype=_find_dtype(entries),
                    size_bytes=size_bytes,
                    licence=header.metadata.get("modelspec.license", ""),
                    header=header,
                )
    except Unsupported as found:
        return _refuse(found.kind)
    except ModelError as error:
        return error
    except (KeyError, IndexError, StopIteration, ValueError, TypeError) as error:
        return ModelError(
            say("It looks like a checkpoint, but lacks parts that all have: {error}.", error=str(error)),
            advice=say("Check that its download is whole."),
        )
    return _explain(header)


def _explain(header: FileHeader) -> ModelError:
    kind = next((kind for pattern, kind in _OTHERS if any(map(pattern.search, header.shapes))), None)
    if kind is not None:
        return _refuse(kind)
    if any(map(_VAE.search, header.shapes)):
        return ModelError(say("It is an autoencoder (VAE) alone, not a model."), advice=_ALONE)
    return ModelError(say("It is a single file of weights, and no checkpoint that is known here."), advice=WHOLE)


def _refuse(kind: Message) -> ModelError:
    return ModelError(
        say("It is {kind}, which no code here runs.", kind=kind),
        advice=say("Use a checkpoint for {families}.", families=name_families()),
    )


def _read_names(file: Path, entries: Mapping[str, Mapping[str, Any]]) -> FileHeader:
    shapes = {name: tuple(entry["shape"]) for name, entry in entries.items() if name != "__metadata__"}
    metadata = {str(name): str(value) for name, value in entries.get("__metadata__", {}).items()}
    return FileHeader(name=file.stem, shapes=shapes, metadata=metadata)


def _find_dtype(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the precision that most numbers are stored in."""
    counts: Counter[str] = Counter()
    for name, entry in entries.items():
        if name != "__metadata__":
            counts[str(entry["dtype"])] += math.prod(entry["shape"])
    most = counts.most_common(1)[0][0] if counts else ""
    return name_dtype(most)
