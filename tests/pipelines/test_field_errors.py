"""pydantic's errors of fields say in code and values what pydantic says in English."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipelines.field_errors import list_fields, name_field, word_first, word_problem
from pipelines.messages import say


class Inner(BaseModel):
    a: int


class Fields(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: Annotated[str, Field(min_length=2, max_length=3, pattern="^[a-z]+$")] = "abc"
    one: Annotated[str, Field(min_length=1)] = "a"
    whole: int = 1
    number: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    flag: bool = True
    kind: Literal["a", "b"] = "a"
    way: Literal["left", "right"] = "left"
    inner: Inner | None = None
    names: Annotated[list[str], Field(max_length=1)] = []
    table: dict[str, int] = {}
    pair: Annotated[tuple[int, ...], Field(max_length=2)] = ()
    own: str = ""

    @field_validator("own")
    @classmethod
    def _refuse(cls, value: str) -> str:
        if value == "odd":
            raise ValueError(say("must not be {value}", value=value))
        return value


def find_problem(**fields: Any) -> Any:
    with pytest.raises(ValidationError) as caught:
        Fields.model_validate(fields)
    return caught.value.errors()[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"text": 1},
        {"text": "a"},
        {"one": ""},
        {"text": "abcd"},
        {"text": "AB"},
        {"whole": "x"},
        {"whole": 1.5},
        {"whole": []},
        {"number": "x"},
        {"number": []},
        {"number": -1},
        {"number": 2},
        {"number": float("nan")},
    ],
)
def test_the_words_are_pydantics_and_have_a_code(fields: dict[str, Any]) -> None:
    problem = find_problem(**fields)
    told = word_problem(problem)
    assert told.lower() == problem["msg"].lower()
    assert told.code, problem["type"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"inner": 3}, "input should be an object of named fields"),
        ({"table": 1}, "input should be an object of named fields"),
        ({"names": "x"}, "input should be a list"),
        ({"kind": "c"}, "input should be one of 'a', 'b'"),  # a list has no word of English
        ({"pair": 1}, "input should be a list"),
        ({"names": ["a", "b"]}, "may have at most 1 item, not 2"),
        ({"pair": (1, 2, 3)}, "may have at most 2 items, not 3"),
    ],
)
def test_words_of_python_are_those_of_json(fields: dict[str, Any], words: str) -> None:
    assert word_problem(find_problem(**fields)) == words


def test_our_own_sentences_are_kept() -> None:
    assert word_problem(find_problem(own="odd")).code == "must not be {value}"
    assert word_problem(find_problem(colour=1)) == "is not a known field"
    assert word_problem(find_problem(inner={})) == "is required"
    assert name_field(find_problem(inner={}), whole="body") == "inner.a"
    assert name_field({"loc": ()}, whole="body") == "body"


def test_a_slip_is_told_with_what_is_likely_meant() -> None:
    assert list_fields(Fields) == {*Fields.model_fields}
    assert word_first([find_problem(numbr=1)], whole="body", known=list_fields(Fields)) == {
        "numbr": "is not a known field; perhaps number is meant"
    }
    assert word_problem(find_problem(colour=1), known=list_fields(Fields)) == "is not a known field"
    assert word_problem(find_problem(colour=1), known=["colours"]).code
    assert word_problem(find_problem(way="rihgt")) == "input should be one of 'left', 'right'; perhaps right is meant"
    assert word_problem(find_problem(way="up")) == word_problem(find_problem(way=["left"]))


def test_errors_without_what_was_given_are_worded_too() -> None:
    with pytest.raises(ValidationError) as caught:
        Fields.model_validate({"way": "rihgt"})
    (problem,) = caught.value.errors(include_input=False)
    assert word_problem(problem) == "input should be one of 'left', 'right'"


def test_a_slip_within_a_field_is_not_taken_for_one_of_the_whole() -> None:
    problem = {"type": "extra_forbidden", "loc": ("inner", "numbr"), "input": 1}
    assert word_problem(problem, known=list_fields(Fields)) == "is not a known field"


def test_what_is_not_listed_keeps_pydantics_words_without_a_code() -> None:
    problem = find_problem(flag="maybe")
    assert word_problem(problem) == problem["msg"].lower()
    assert word_problem(problem).code == ""
