"""Prompts that stand for many: what they stand for, how many, and what is told when they cannot be read."""

import random
import re
from collections.abc import Sequence

import pytest

from pipelines.errors import RecipeError
from studio.jobs.many.templates import MANY, MAX_DEPTH, Template, read_template

LISTS = {
    "colours": ["red", "blue", "deep {green|black}"],
    "boats": ["__colours__ boat", "raft"],
    "places/cities": ["Oslo", "Rome"],
    "sea_birds": ["gull", "tern"],
    "ouroboros": ["a", "__ouroboros__"],
    **{f"deep{depth}": [f"__deep{depth + 1}__"] for depth in range(MAX_DEPTH + 1)},
    "vast": [str(number) for number in range(1000)],
}


def read_list(name: str) -> Sequence[str]:
    if name not in LISTS:
        raise RecipeError({"prompt": f"there is no list __{name}__"})
    return LISTS[name]


def read(prompt: str) -> Template:
    return read_template(prompt, read_list)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("A boat", ["A boat"]),
        ("A {red|blue} boat", ["A red boat", "A blue boat"]),
        ("{a|b}{1|2}", ["a1", "a2", "b1", "b2"]),
        ("{a|{b|c} d}", ["a", "b d", "c d"]),
        ("A{| big} boat", ["A boat", "A big boat"]),
        ("__places/cities__ at {dawn|dusk}", ["Oslo at dawn", "Oslo at dusk", "Rome at dawn", "Rome at dusk"]),
        ("A __sea_birds__", ["A gull", "A tern"]),
        ("__boats__", ["red boat", "blue boat", "deep green boat", "deep black boat", "raft"]),
        ("{a|b} | c", ["a | c", "b | c"]),
        (r"\{a\|b\} \__x__ \\ \( {c\|d|e}", [r"{a|b} __x__ \ \( c|d", r"{a|b} __x__ \ \( e"]),
        (
            '{"scene": "{sea|land}", "props": {"boats": 2}}',
            ['{"scene": "sea", "props": {"boats": 2}}', '{"scene": "land", "props": {"boats": 2}}'],
        ),
        ('{"lens": "35mm|50mm"}', ['{"lens": "35mm|50mm"}']),
        ('{"a": {"b": ["c|d"]}, "e": "f|g"}', ['{"a": {"b": ["c|d"]}, "e": "f|g"}']),
        ('A {red|blue} {"lens": "35|50"}', ['A red {"lens": "35|50"}', 'A blue {"lens": "35|50"}']),
        ('{"a": "{x|y}|z"}', ['{"a": "x|z"}', '{"a": "y|z"}']),
        ("snake_case and __ alone", ["snake_case and __ alone"]),
        ("foo__boats__bar", ["foo__boats__bar"]),
        ("(__sea_birds__)s", ["(gull)s", "(tern)s"]),
    ],
)
def test_a_prompt_stands_for_these(prompt: str, prompts: list[str]) -> None:
    template = read(prompt)
    assert template.count == len(prompts)
    assert template.list_prompts(100) == prompts
    assert template.is_plain == (len(prompts) == 1)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("A {red|blue boat", "the { at character 3 is never closed"),
        ("A red} boat", "the } at character 6 was never opened"),
        ("{a|" * 21 + "}" * 21, "more than 20 braces stand inside one another"),
        ("__nothing__", "there is no list __nothing__"),
        ("__ouroboros__", "leads back to itself"),
        ("__deep0__", "through more than 8 others"),
        ("{2::red|blue} boat", "2:: in {2::red|blue} is not known here"),
        ("{2$$red|blue} boat", "2$$ in {2$$red|blue} is not known here"),
    ],
)
def test_what_cannot_be_read_is_told_about_the_prompt(prompt: str, message: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(message)) as caught:
        read(prompt)
    assert list(caught.value.fields) == ["prompt"]


def test_vast_templates_are_counted_and_drawn_without_listing_them() -> None:
    template = read("__vast__ " * 300)
    assert template.count == MANY
    assert len(template.list_prompts(3)) == 3
    drawn = template.draw_prompts(5, random.Random(7))
    assert len(set(drawn)) == 5
    assert drawn == template.draw_prompts(5, random.Random(7))
    assert len({prompt.split()[0] for prompt in drawn}) > 1


def test_draws_are_different_and_no_more_than_there_are() -> None:
    template = read("{a|b|c} {1|2}")
    assert sorted(template.draw_prompts(50, random.Random(1))) == sorted(template.list_prompts(50))
    assert len(set(template.draw_prompts(4, random.Random(1)))) == 4
    assert read("{a|a|b}").draw_prompts(2, random.Random(1)) in (["a", "b"], ["b", "a"])
