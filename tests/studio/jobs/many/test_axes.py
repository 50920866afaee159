"""What is typed on an axis, and what it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import RecipeError
from studio.jobs.many.axes import MAX_CHARS, MAX_VALUES, Axes, Axis, AxisField


def read(field: str, values: str) -> list[object]:
    return list(Axis(field=AxisField(field), values=values).read())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("4, 8, 12", [4, 8, 12]),
        ("1-5", [1, 2, 3, 4, 5]),
        ("5-1", [5, 4, 3, 2, 1]),
        ("1 – 3, 10", [1, 2, 3, 10]),
        ("1-9 (+2)", [1, 3, 5, 7, 9]),
        ("10-0 (4)", [10, 6, 2]),
        ("0-20 [5]", [0, 5, 10, 15, 20]),
        ("0-10 [4]", [0, 3, 7, 10]),
        ("4，8、12", [4, 8, 12]),
        ("4, 4, 3-5", [4, 3, 5]),
        ("1,\n2", [1, 2]),
    ],
)
def test_whole_numbers_come_as_lists_and_ranges(typed: str, meant: list[int]) -> None:
    assert read("steps", typed) == meant


def test_fractions_are_exact() -> None:
    assert read("guidance_scale", "1-2 (+0.1)") == [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0]
    assert read("guidance_scale", "3.5, 7") == [3.5, 7.0]
    assert read("strength", "0.2-1 (+0.2)") == [0.2, 0.4, 0.6, 0.8, 1.0]


def test_the_scale_of_a_lora_may_be_below_zero() -> None:
    assert read("lora_scale", "-1-1 (+0.5), 2") == [-1.0, -0.5, 0.0, 0.5, 1.0, 2.0]
    assert read("lora_scale", "-2--1, -0.25") == [-2.0, -1.0, -0.25]
    assert read("lora_scale", "0-1 [5]") == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_an_axis_names_a_lora_only_for_its_scale() -> None:
    pixel = Axis(field=AxisField.LORA_SCALE, values="0.5, 1", lora="pixel")
    assert [pixel.label(value) for value in pixel.read()] == ["pixel 0.5", "pixel 1"]
    assert "lora" not in Axis(field=AxisField.STEPS, values="1").model_dump()
    assert pixel.model_dump()["lora"] == "pixel"
    with pytest.raises(ValueError, match="leave `lora` out"):
        Axis(field=AxisField.STEPS, values="1", lora="pixel").read()
    Axes(x=pixel, y=Axis(field=AxisField.LORA_SCALE, values="1", lora="boats")).read()
    with pytest.raises(RecipeError, match="has pixel already"):
        Axes(x=pixel, y=pixel).read()


def test_words_keep_their_case_and_their_commas_in_quotes() -> None:
    assert read("prompt", 'red, Blue, "green, dark"') == ["red", "Blue", "green, dark"]
    assert read("prompt", "红，蓝、绿") == ["红", "蓝", "绿"]


def test_names_are_taken_as_pages_show_them() -> None:
    assert read("shape", "512 × 512, 256X256") == ["512x512", "256x256"]
    assert read("scheduler", "DPM++ 2M, Euler") == ["dpmpp_2m", "euler"]


@pytest.mark.parametrize(
    ("field", "typed", "why"),
    [
        ("steps", "many", "neither a number nor a range"),
        ("steps", "1.5", "not whole"),
        ("steps", "1-1000000000000", "at most 100"),
        ("steps", "1-5 (+0)", "never gets to its end"),
        ("steps", "1-5 [1]", "2 to 100"),
        ("steps", " , ", "at least one"),
        ("steps", "-3", "neither"),
        ("seed", "-3-5", "neither"),
        ("lora_scale", "--1", "neither"),
        ("prompt", "red", "what to put in its place"),
        ("prompt", '"red, blue', "no partner"),
        ("seed", "1-80, 101-190", "170 values"),
    ],
)
def test_what_cannot_be_meant_says_why(field: str, typed: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(field, typed)


def test_problems_name_their_axis() -> None:
    axes = Axes(
        x=Axis(field=AxisField.STEPS, values="x"),
        y=Axis(field=AxisField.SEED, values="1-3"),
        z=Axis(field=AxisField.SEED, values="4-6"),
    )
    with pytest.raises(RecipeError) as error:
        axes.read()
    assert list(error.value.fields) == ["x", "z"]


def test_two_axes_may_both_change_the_prompt() -> None:
    axes = Axes(
        x=Axis(field=AxisField.PROMPT, values="red, blue"), y=Axis(field=AxisField.PROMPT, values="boat, house")
    )
    assert axes.read() == {"x": ("red", "blue"), "y": ("boat", "house")}


def test_labels_say_what_a_number_is() -> None:
    assert Axis(field=AxisField.STEPS, values="8").label(8) == "Steps 8"
    assert Axis(field=AxisField.GUIDANCE_SCALE, values="8").label(4.0) == "Guidance 4"
    assert Axis(field=AxisField.PROMPT, values="8").label("red") == "red"


@given(st.sampled_from(AxisField), st.text(min_size=1, max_size=60) | st.from_regex(r"[0-9 ,.\-()\[\]+]{1,30}"))
def test_whatever_is_typed_is_read_or_refused(field: AxisField, typed: str) -> None:
    try:
        found = Axis(field=field, values=typed[:MAX_CHARS]).read()
    except ValueError:
        return
    assert 1 <= len(found) <= MAX_VALUES
    assert len(set(found)) == len(found)
