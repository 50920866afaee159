"""Sentences carry their code and values through JSON, pickles and other sentences."""

import json
import pickle

import pytest

from pipelines.errors import ModelError, RecipeError
from pipelines.messages import NOTHING, Message, add_codes, english, join, read_code, read_codes, say, say_count, tell
from pipelines.messages import write_code as write

LOADING = say("loading {model}", model="SDXL")


def test_a_sentence_is_its_english_text() -> None:
    assert say("{count} jobs of {owner}", count=3, owner="ada") == "3 jobs of ada"
    assert say("Write such as {{ window = 4096 }}; {name} may be left out", name="it").startswith("Write such as {{ ")
    assert say_count("{count} job", "{count} jobs", count=1).code == "{count} job"
    assert say_count("{count} job", "{count} jobs", count=2) == "2 jobs"


def test_a_value_that_is_missing_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="model"):
        say("loading {model}")


def test_codes_stand_beside_texts_in_fields_lists_and_objects() -> None:
    record = add_codes(
        {"reason": LOADING, "notes": ["plain", LOADING], "fields": {"steps": say("is required"), "seed": "odd"}, "n": 1}
    )
    code = {"code": "loading {model}", "values": {"model": "SDXL"}}
    assert record == {
        "reason": "loading SDXL",
        "reason_said": code,
        "notes": ["plain", "loading SDXL"],
        "notes_said": [None, code],
        "fields": {"steps": "is required", "seed": "odd"},
        "fields_said": {"steps": {"code": "is required", "values": {}}},
        "n": 1,
    }
    assert add_codes({"reason": english("ffmpeg's own words"), "notes": [], "fields": {}}).keys() == {
        "reason",
        "notes",
        "fields",
    }


def test_json_and_back_keeps_the_code() -> None:
    nested = say("{field}: {text}", field="steps", text=LOADING)
    before = {"reason": nested, "notes": [LOADING, "plain"], "left": None}
    after = read_codes(json.loads(json.dumps(add_codes(before))))
    assert after == before
    assert add_codes(after) == add_codes(before)
    assert after["reason"].values["text"].code == "loading {model}"


def test_a_column_and_back_keeps_the_code() -> None:
    assert read_code(str(LOADING), write(LOADING)).to_json() == LOADING.to_json()
    assert write("plain") is None
    assert read_code("plain", None) == "plain"


def test_a_pickle_and_back_keeps_the_code() -> None:
    assert pickle.loads(pickle.dumps(LOADING)).to_json() == LOADING.to_json()


def test_sentences_are_joined_without_empty_ones() -> None:
    joined = join(("One.", NOTHING, LOADING, "Three."))
    assert joined == "One. loading SDXL Three."
    assert joined.to_json()["values"]["first"]["values"]["second"]["code"] == "loading {model}"
    assert join((LOADING, NOTHING)) is LOADING
    assert join(("a", "b"), ";") == "a; b"
    assert join(()) == ""


def test_an_error_has_its_own_sentence() -> None:
    assert tell(ValueError(LOADING)) is LOADING
    assert tell(ValueError("odd")) == "odd"
    assert tell(ValueError()) == ""
    error = ModelError(say("There is no model {model}.", model="x"), advice=LOADING)
    assert str(error) == "There is no model x. loading SDXL"
    assert isinstance(error.whole, Message)
    fields = RecipeError({"steps": say("is required"), "model": error.whole})
    assert str(fields) == "steps: is required; model: There is no model x. loading SDXL"
