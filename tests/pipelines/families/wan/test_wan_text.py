"""Wan's prompts are cleaned as its authors and diffusers clean them, in the studio's count of them too."""

import pytest
from diffusers.pipelines.wan.pipeline_wan import prompt_clean

from pipelines.prompts.pieces import clean_for_t5


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("\u201cOPEN\u201d, it\u2019s", '"OPEN", it\'s'),
        ("caf\u00c3\u00a9", "caf\u00e9"),
        ("\uff21\uff22\uff23", "ABC"),
        ("a &amp;amp; b\n  c ", "a & b c"),
    ],
    ids=["quotes", "a broken accent", "full width", "HTML and blanks"],
)
def test_a_prompt_is_cleaned_as_diffusers_does(written: str, read: str) -> None:
    assert prompt_clean(written) == clean_for_t5(written) == read
