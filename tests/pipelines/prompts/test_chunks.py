"""Long prompts are cut where A1111 cuts them: at 75 pieces, or after the last comma near that."""

import re
from collections.abc import Sequence

from pipelines.prompts.chunks import Piece, cut_into_chunks
from pipelines.prompts.emphasis import split_by_weight


def tokenize(text: str) -> Sequence[Piece]:
    return [Piece(len(word[0]), word.start(), word.end()) for word in re.finditer(r"[^\s,]+|,", text)]


def cut(prompt: str, length: int = 75) -> list[str]:
    return ["".join(chunk.texts).strip() for chunk in cut_into_chunks(split_by_weight(prompt), tokenize, length=length)]


def test_a_short_prompt_is_one_chunk_and_no_prompt_too() -> None:
    assert cut("a boat") == ["a boat"]
    assert cut("") == [""]


def test_without_a_comma_near_a_chunk_is_full() -> None:
    words = [str(number) for number in range(80)]
    assert cut(" ".join(words)) == [" ".join(words[:75]), " ".join(words[75:])]
    early = ["first,", *words]  # two pieces, long before the end
    assert cut(" ".join(early))[0].split()[-1] == "72"


def test_what_follows_the_last_comma_goes_with_what_comes() -> None:
    words = [str(number) for number in range(80)]
    words[60] += ","  # at place 61 of 75: fourteen pieces move
    first, second = cut(" ".join(words))
    assert first.endswith("60,")
    assert second.startswith("61 ")


def test_a_comma_too_far_away_holds_nothing_back() -> None:
    words = [str(number) for number in range(80)]
    words[53] += ","  # at place 54: twenty pieces would move, nineteen may
    assert cut(" ".join(words))[0].endswith(" 73")
    words[53], words[54] = "53", "54,"
    assert cut(" ".join(words))[0].endswith("54,")


def test_break_ends_a_chunk_and_weights_stay_with_their_words() -> None:
    chunks = cut_into_chunks(split_by_weight("a b BREAK (c d:1.3) e BREAK"), tokenize, length=75)
    assert [chunk.weights for chunk in chunks] == [[1, 1], [1.3, 1.3, 1]]


def test_nothing_is_lost_between_chunks() -> None:
    prompt = ", ".join(f"word{number} and more" for number in range(100))
    assert "".join(cut(prompt)).replace(" ", "") == prompt.replace(" ", "")
