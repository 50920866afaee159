"""Captions are a pure function of the example, the epoch and the seed."""

import pytest

from pipelines.training.data.captions import has_trigger, list_captions, remove_trigger, write_caption
from tests.pipelines.training.data.pictures import make_example

TAGS = make_example(captions=("sks, a, b, c, d, e",))


def write(example: object = TAGS, *, epoch: int = 0, **options: object) -> str:
    return write_caption(example, epoch=epoch, seed=0, **options)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_captions_are_dropped_at_the_asked_rate(rate: float) -> None:
    examples = [make_example(str(number)) for number in range(200)]
    dropped = [write(one, epoch=epoch, dropout=rate) == "" for one in examples for epoch in range(20)]
    assert sum(dropped) / len(dropped) == pytest.approx(rate, abs=0.02)


def test_every_alternative_is_used_about_equally() -> None:
    example = make_example(captions=("one", "two", "three"))
    said = [write(example, epoch=epoch) for epoch in range(900)]
    assert all(said.count(caption) == pytest.approx(300, abs=60) for caption in example.captions)


def test_a_repeat_is_drawn_anew_and_the_same_again() -> None:
    example = make_example(captions=tuple("abcdefgh"))
    said = [[write(example, occurrence=at) for at in range(30)] for _ in range(2)]
    assert said[0] == said[1] and len(set(said[0])) == 8


def test_tags_are_shuffled_after_those_that_stay() -> None:
    said = {write(epoch=epoch, shuffle_tags=True, keep_tags=2) for epoch in range(200)}
    assert len(said) == 24
    assert all(one.startswith("sks, a, ") and sorted(one.split(", ")[2:]) == ["b", "c", "d", "e"] for one in said)
    assert write() == "sks, a, b, c, d, e"


def test_the_trigger_is_put_in_front_of_captions_that_lack_it() -> None:
    plain = make_example(captions=("a cat, on grass",))
    assert write(plain, trigger="sks cat") == "sks cat, a cat, on grass"
    assert write(make_example(captions=("A SKS cat sits",)), trigger="sks cat") == "A SKS cat sits"
    assert {write(plain, epoch=at, trigger="sks", shuffle_tags=True).split(", ")[0] for at in range(20)} == {"sks"}
    assert write(make_example(captions=("",)), trigger="sks") == "sks"


@pytest.mark.parametrize(
    ("caption", "trigger", "has"),
    [
        ("a party", "art", False),
        ("modern art.", "art", True),
        ("一只柯基在跑", "柯基", True),
        ("<sks> dog", "<sks>", True),
        ("sks2 dog", "sks", False),
    ],
)
def test_a_trigger_is_a_word_of_its_own(caption: str, trigger: str, has: bool) -> None:  # noqa: FBT001
    assert has_trigger(caption, trigger) == has


def test_prior_pictures_have_neither_trigger_nor_dropout() -> None:
    prior = make_example(captions=("a dog",), is_prior=True)
    assert {write(prior, epoch=at, trigger="sks", dropout=0.9) for at in range(50)} == {"a dog"}


def test_all_captions_can_be_listed_ahead() -> None:
    example = make_example(captions=("one", "sks two"))
    assert list_captions(example, trigger="sks") == ["sks, one", "sks two"]


@pytest.mark.parametrize(
    ("caption", "without"),
    [
        ("A zorb in a meadow", "in a meadow"),
        ("zorb, a red house, noon", "a red house, noon"),
        ("A house beside the ZORB, at noon", "A house beside, at noon"),
        ("zorbs at noon", "zorbs at noon"),
        ("zorb", ""),
    ],
)
def test_a_trigger_is_taken_out_with_its_article(caption: str, without: str) -> None:
    assert remove_trigger(caption, "zorb") == without
    assert write(make_example(captions=(caption,)), trigger="zorb", is_twin=True) == without
