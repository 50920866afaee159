"""Weights are read as A1111 reads them; whatever is typed is read as something."""

import random

import pytest

from pipelines.prompts.emphasis import has_edits, has_explicit_weights, list_commands, split_by_weight


def read(prompt: str) -> list[tuple[str, float]]:
    return [("BREAK" if part.is_break else part.text, round(part.weight, 4)) for part in split_by_weight(prompt)]


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("a boat", [("a boat", 1)]),
        ("", []),
        ("an (important) word", [("an ", 1), ("important", 1.1), (" word", 1)]),
        ("(unbalanced", [("unbalanced", 1.1)]),
        ("[[half", [("half", 0.8264)]),
        (r"(literal\]", [("literal]", 1.1)]),
        (r"\(plain\) \[plain\]", [("(plain) [plain]", 1)]),
        ("(one)(piece)", [("onepiece", 1.1)]),
        ("(a:1.2) b)", [("a", 1.2), (" b)", 1)]),
        ("(a: -0.5)", [("a", -0.5)]),
        ("(ratio 16:9:1.3)", [("ratio 16:9", 1.3)]),
        ("16:9 (a", [("16:9 ", 1), ("a", 1.1)]),
        ("(a [b) c]", [("a ", 1.1), ("b", 1), (" c", 0.9091)]),
        (
            "a (((house:1.3)) [on] a (hill:0.5), sun, (((sky)))).",
            [
                *(("a ", 1), ("house", 1.573), (" ", 1.1), ("on", 1), (" a ", 1.1), ("hill", 0.55)),
                *((", sun, ", 1.1), ("sky", 1.4641), (".", 1)),
            ],
        ),
        ("a BREAK (b BREAK c:1.5)", [("a", 1), ("BREAK", 1), ("b", 1.5), ("BREAK", 1), ("c", 1.5)]),
        ("BREAKFAST", [("BREAKFAST", 1)]),
        ("(" * 1000 + "a" + ")" * 1000, [("a", 100)]),
        ("((a:9999):0)", [("a", 0)]),
    ],
)
def test_each_piece_has_its_weight(prompt: str, parts: list[tuple[str, float]]) -> None:
    assert read(prompt) == [(text, pytest.approx(weight)) for text, weight in parts]


def test_whatever_is_typed_is_read() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        prompt = "".join(rng.choice("ab ()[]:\\1.2\nBREAK") for _ in range(rng.randrange(40)))
        assert all(part.weight >= 0 for part in split_by_weight(prompt) if "-" not in prompt)


@pytest.mark.parametrize(
    ("prompt", "weighs"),
    [("(a:1.2)", True), ("(a b, c : .5)", True), ("(a)", False), (r"\(a:1.2)", False), ("", False)],
)
def test_a_weight_in_numbers_is_noticed(prompt: str, weighs: bool) -> None:  # noqa: FBT001
    assert has_explicit_weights(prompt) == weighs


@pytest.mark.parametrize(
    ("prompt", "edits"),
    [("[cat:dog:0.5]", True), ("[cat:10]", True), ("[::3]", True), ("[a: b]", False), ("[a]", False)]
    + [("[cat|dog] in a hat", True), (r"\[cat|dog]", False), ("a | b [c]", False)],
)
def test_words_that_are_to_change_midway_are_noticed(prompt: str, edits: bool) -> None:  # noqa: FBT001
    assert has_edits(prompt) == edits


@pytest.mark.parametrize(
    ("prompt", "commands"),
    [
        (
            "a cat, embedding:EasyNegative.pt, (embedding:bad-hands:1.2)",
            ["embedding:EasyNegative.pt", "embedding:bad-hands"],
        ),
        ("a cat <segment:face,0.6> smiling <hypernet:x:1>", ["<segment:face,0.6>", "<hypernet:x:1>"]),
        ("<random[2]:red|blue> cat <break>, 2 < 3: true > false", ["<random[2]:red|blue>"]),
        ("embedding a flower", []),
    ],
)
def test_what_other_programs_act_on_is_noticed(prompt: str, commands: list[str]) -> None:
    assert list_commands(prompt) == commands
