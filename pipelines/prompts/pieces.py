"""Counts a prompt's word pieces as a model's own tokenizer does, without loading the model.

The tokenizer's files are read where the checkpoint lies, by the library `tokenizers`, which transformers stands on too:
the page counts while people type, in a process that never imports torch. A model whose files are not on this machine
is not counted.
Not here: what is said about it (reading.py).
"""

import functools
import html
import importlib.util
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ftfy import fix_text

from pipelines.models.catalog import Model
from pipelines.prompts.chunks import Piece

log = logging.getLogger(__name__)

CONFIG = "tokenizer_config.json"
CHAT, CLIP, T5 = "chat", "clip", "t5"
ENDS = {CHAT: 0, CLIP: 2, T5: 1}
_CLIP_WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"  # as CLIP's paper
)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """A model's tokenizer: `tokenize` gives a text's pieces; `frame` puts a prompt into what the model reads.

    `length` is how many pieces the encoder takes, `ends` how many of them mark beginning and end.
    """

    tokenize: Callable[[str], Sequence[Piece]]
    frame: Callable[[str], str]
    length: int
    ends: int


def find_pieces(model: Model) -> Pieces | None:
    """Returns the model's tokenizer; None if its files are not here or cannot be read."""
    folder = _find_folder(model)
    if folder is None or not model.traits.tokenizer:
        return None
    length = None if model.traits.has_fixed_text_length else model.text_length
    return _read(folder, (folder / CONFIG).stat().st_mtime_ns, model.traits.tokenizer, length)


def _find_folder(model: Model) -> Path | None:
    """Returns the folder of the first text encoder's tokenizer: in the model's folder, or the hub's cache."""
    model = model.in_place
    if model.path is not None:
        folder = model.path / "tokenizer"
        return folder if (folder / CONFIG).is_file() else None
    if not model.repo:
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model.repo, f"tokenizer/{CONFIG}", revision=model.revision or None)
    return Path(found).parent if isinstance(found, str) else None


@functools.lru_cache(maxsize=8)
def _read(folder: Path, _mtime_ns: int, kind: str, length: int | None) -> Pieces | None:
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        length = length or int(config["model_max_length"])  # diffusers overrides it where a pipeline has its own
        tokenize = _tokenize_with(_read_clip(folder) if kind == CLIP else _read_whole(folder))
        frame = _frame_in_chat(folder, config) if kind == CHAT else clean_for_t5 if kind == T5 else str
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing narrower for a file that it cannot read
        log.info("the prompts of %s are not counted: %s", folder, error)
        return None
    return Pieces(tokenize=tokenize, frame=frame, length=length, ends=ENDS[kind])


def _read_whole(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _tokenize_with(tokenizer: Any) -> Callable[[str], list[Piece]]:
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def tokenize(text: str) -> list[Piece]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return [Piece(number, *place) for number, place in zip(encoding.ids, encoding.offsets, strict=True)]

    return tokenize


def _read_clip(folder: Path) -> Any:
    """Builds CLIP's tokenizer from its vocabulary and merges, in either layout, as transformers' CLIPTokenizer does."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    if (folder / "vocab.json").is_file():
        vocabulary, merges = models.BPE.read_file(*(str(folder / name) for name in ("vocab.json", "merges.txt")))
    else:
        model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
        vocabulary = model["vocab"]
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        merges = [(first, second) for first, second in pairs]
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=merges,
            continuing_subword_prefix="",
            end_of_word_suffix="</w>",
            unk_token="<|endoftext|>",
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CLIP_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return tokenizer


def clean_for_t5(prompt: str) -> str:
    """Returns the text as Wan reads it: typographic signs made plain, HTML's unescaped, blanks joined."""
    return " ".join(html.unescape(html.unescape(fix_text(prompt))).split())


def _frame_in_chat(folder: Path, config: dict[str, Any]) -> Callable[[str], str]:
    """Returns the function that writes a prompt as a turn of the language model's chat."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    file = folder / "chat_template.jinja"
    source = file.read_text("utf-8") if file.is_file() else str(config["chat_template"])
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    index = json.loads((folder.parent / "model_index.json").read_text("utf-8"))
    instruction = _read_instruction() if index.get("_class_name") == "Flux2Pipeline" else None
    words = {name: _text_of(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}

    def frame(prompt: str) -> str:
        if instruction is None:
            turns: list[Any] = [{"role": "user", "content": prompt}]
            return template.render(messages=turns, add_generation_prompt=True, enable_thinking=False, **words)
        turns = [
            {"role": role, "content": [{"type": "text", "text": text}]}
            for role, text in (("system", instruction), ("user", prompt.replace("[IMG]", "")))
        ]
        return template.render(messages=turns, add_generation_prompt=False, **words)

    return frame


def _text_of(token: object) -> str:
    """Returns a special token's text, which configs also write as an object."""
    value = cast(dict[str, Any], token).get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""


@functools.cache
def _read_instruction() -> str:
    """Returns the system message of FLUX.2 dev from diffusers' file of constants, without importing diffusers."""
    package = importlib.util.find_spec("diffusers")
    assert package is not None and package.submodule_search_locations, "diffusers is among the fixed packages"
    file = Path(package.submodule_search_locations[0]) / "pipelines" / "flux2" / "system_messages.py"
    spec = importlib.util.spec_from_file_location("flux2_system_messages", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.SYSTEM_MESSAGE)
