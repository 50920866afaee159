"""Prompts are counted without transformers as transformers counts them, for each kind of tokenizer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.prompts.pieces import find_pieces

PROMPTS = (
    "A red sailboat, at   night!",
    "zwölf Boxkämpfer's 日本の山 😀 &amp; (ink:1.2)\n\nBREAK",
    '{"scene": "35mm|50mm"} ' * 40,
    "",
)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_clip(prompt: str) -> None:
    from transformers import CLIPTokenizer

    model = load_catalog().get("demo-sdxl")
    pieces = find_pieces(model)
    assert pieces is not None
    tokenizer = CLIPTokenizer.from_pretrained(f"{model.path}/tokenizer")
    assert [piece.id for piece in pieces.tokenize(prompt)] == tokenizer(prompt, add_special_tokens=False)["input_ids"]
    assert pieces.length == tokenizer.model_max_length


@pytest.mark.parametrize("prompt", PROMPTS)
def test_clip_in_one_file(prompt: str, tmp_path: Path) -> None:
    """Saves it as transformers does today: tokenizer.json, without vocab.json."""
    from transformers import CLIPTokenizer

    model = load_catalog().get("demo-sdxl")
    tokenizer = CLIPTokenizer.from_pretrained(f"{model.path}/tokenizer")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "tokenizer" / name).unlink(missing_ok=True)
    pieces = find_pieces(replace(model, path=tmp_path))
    assert pieces is not None
    assert [piece.id for piece in pieces.tokenize(prompt)] == tokenizer(prompt, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_t5(prompt: str) -> None:
    from pipelines.families.wan.architecture import ARCHITECTURE
    from pipelines.families.wan.encode import tokenize

    model = load_catalog().get("demo-wan")
    assert model.path is not None
    pieces = find_pieces(model)
    assert pieces is not None
    (tokenizer,) = ARCHITECTURE.read_tokenizers(model.path)
    ids, mask = tokenize(tokenizer, [prompt], length=10_000)
    assert [piece.id for piece in pieces.tokenize(pieces.frame(prompt))] == ids[mask].tolist()[:-1]  # but for the end


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("kind", ["klein", "dev"])
def test_chat(prompt: str, kind: str, load_chat_model: Any) -> None:
    from pipelines.families.flux2.architecture import ARCHITECTURE
    from pipelines.families.flux2.variants import DEV, KLEIN

    model = load_chat_model(kind)
    pieces = find_pieces(model)
    assert pieces is not None
    (tokenizer,) = ARCHITECTURE.read_tokenizers(model.path)
    ids, mask = {"klein": KLEIN, "dev": DEV}[kind].tokenize(tokenizer, prompt, 10_000)
    wanted = [number for number, is_text in zip(ids, mask, strict=True) if is_text]
    assert [piece.id for piece in pieces.tokenize(pieces.frame(prompt))] == wanted


@pytest.fixture
def load_chat_model(tmp_path: Any) -> Any:
    """Returns a model of the catalogue whose tokenizer is a tiny one, with a chat template like the real one."""
    import json

    from tests.pipelines.families.flux2.conftest import DEV_CHAT, KLEIN_CHAT, make_tokenizer

    def load(kind: str) -> Any:
        chat = {"klein": KLEIN_CHAT, "dev": DEV_CHAT}[kind]
        make_tokenizer(chat, length=64, padding_side="right").save_pretrained(tmp_path / "tokenizer")
        name = {"klein": "Flux2KleinPipeline", "dev": "Flux2Pipeline"}[kind]
        (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": name}))
        return replace(load_catalog().get(f"flux2-{'dev' if kind == 'dev' else 'klein-4b'}"), path=tmp_path)

    return load
