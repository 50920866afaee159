"""What a model reads of a prompt is counted with its own tokenizer, and what it does not read is said."""

import dataclasses
from pathlib import Path

import pytest

from pipelines.models.catalog import Model, load_catalog
from pipelines.prompts.reading import count_chunks, list_notes, read_caption, read_prompt

MODELS = ("demo-sdxl", "demo-flux2", "demo-wan")
LONG = "A red sailboat, " + "very detailed, " * 200 + "a lighthouse at night"


def get(model_id: str) -> Model:
    return load_catalog().get(model_id)


@pytest.mark.parametrize("model_id", MODELS)
def test_a_short_prompt_is_read_whole(model_id: str) -> None:
    reading = read_prompt(get(model_id), "A red sailboat")
    assert reading is not None
    assert 0 < reading.count <= reading.room
    assert (reading.unread, reading.chunks) == ("", 1)
    assert list_notes(get(model_id), "A red sailboat", "") == []


@pytest.mark.parametrize("model_id", MODELS)
def test_what_a_long_prompt_loses_is_named(model_id: str) -> None:
    model = get(model_id)
    reading = read_prompt(model, LONG)
    assert reading is not None
    assert reading.count > reading.limit
    assert reading.unread.endswith("a lighthouse at night")
    assert LONG.endswith(reading.unread)
    [note] = list_notes(model, LONG, "")
    assert note.startswith(f"{model.title} reads {reading.limit} of the {reading.count} word pieces of the prompt.")
    assert note.endswith("a lighthouse at night")


@pytest.mark.parametrize("model_id", MODELS)
def test_the_last_word_that_is_read_is_found(model_id: str) -> None:
    """Word by word, until one is not read: then exactly that one is named."""
    model, words = (
        get(model_id),
        ["red", "boat", "on", "the", "sea", "at", "night", "with", "a", "light", "and", "a", "house"] * 16,
    )
    for count in range(1, len(words)):
        reading = read_prompt(model, " ".join(words[:count]))
        assert reading is not None
        if reading.unread:
            assert reading.count > reading.limit
            assert reading.unread == words[count - 1]
            return
        assert reading.count <= reading.limit
    raise AssertionError("all of it was read")


@pytest.mark.parametrize("model_id", ["demo-flux2", "demo-wan"])
def test_a_length_that_the_pipeline_gives_counts_and_not_the_tokenizers_own(model_id: str) -> None:
    model = get(model_id)
    found = [read_prompt(dataclasses.replace(model, text_length=length), LONG) for length in (40, 64)]
    assert found[1].limit - found[0].limit == 24


def test_sdxl_takes_chunks_as_it_needs_them() -> None:
    model = get("demo-sdxl")
    size = read_prompt(model, "a").room
    assert [count_chunks(model, "a " * count, "") for count in (1, size, size + 1, 9 * size)] == [1, 1, 2, 4]
    assert count_chunks(model, "a", "b " * (size + 1)) == 2
    assert count_chunks(model, "a BREAK b BREAK c", None) == 3
    assert count_chunks(get("demo-wan"), LONG, LONG) == 1


def test_weights_are_for_models_that_know_them() -> None:
    prompt = "a (red:1.2) boat BREAK [house:cactus:0.5]"
    assert [note.split(":")[0] for note in list_notes(get("demo-sdxl"), prompt, "")] == [
        "Words do not change midway here"
    ]
    notes = list_notes(get("demo-flux2"), prompt, "")
    assert any("does not weigh words" in note for note in notes)
    assert any("reads BREAK as a word" in note for note in notes)
    assert list_notes(get("demo-wan"), "a boat (and nothing else)", "[none]") == []


def test_without_the_models_files_nothing_is_counted(tmp_path: Path) -> None:
    away = dataclasses.replace(get("demo-sdxl"), path=tmp_path)
    assert read_prompt(away, LONG) is None
    assert count_chunks(away, LONG, "") == 1
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text("{")
    assert read_prompt(away, LONG) is None


def test_the_longest_prompt_is_counted_in_a_moment() -> None:
    for model_id in MODELS:
        assert read_prompt(get(model_id), "a (b) [c], " * 2900) is not None


@pytest.mark.parametrize("model_id", MODELS)
def test_of_a_caption_a_training_reads_one_chunk(model_id: str) -> None:
    model = get(model_id)
    reading, whole = read_caption(model, LONG), read_prompt(model, LONG)
    assert reading is not None and whole is not None
    assert (reading.chunks, reading.count) == (1, whole.count)
    assert reading.limit * max(1, whole.chunks) == whole.limit
    assert reading.unread.endswith("a lighthouse at night")
    short = read_caption(model, "A red sailboat")
    assert short is not None and not short.unread
