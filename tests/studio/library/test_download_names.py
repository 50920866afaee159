"""What people save has a name that says what it is, on every system."""

from collections.abc import Callable

import pytest

from studio.library.download_names import MAX_BYTES, MAX_LETTERS, make_slug, name_download, name_downloads
from studio.library.records import Output


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("A red sailboat", "a-red-sailboat"),
        ("  It's 5 o’clock: tea/coffee?\n", "its-5-oclock-tea-coffee"),
        ('..\\..\\<a|b>* "quoted" (word:1.2)', "a-b-quoted-word-1-2"),
        ("Ein Häuschen im Schnee, 雪中的小屋", "ein-häuschen-im-schnee-雪中的小屋"),
        ("\u202egnp.exe\u200b 🚀", "gnp-exe"),
        ("?!", ""),
    ],
)
def test_a_slug_is_letters_and_digits_of_any_script(text: str, slug: str) -> None:
    assert make_slug(text) == slug


def test_a_long_prompt_is_cut_between_words() -> None:
    assert make_slug("a lighthouse " * 20) == "a-lighthouse-a-lighthouse-a-lighthouse-a-lighthouse-a"
    assert make_slug("x" * 500) == "x" * MAX_LETTERS
    assert 150 < len(make_slug("雪" * 500).encode()) <= MAX_BYTES
    assert make_slug("😀" * 500 + "𠀀" * 500).encode().decode()  # of four bytes each, none cut in two


def test_a_download_has_prompt_and_seed_in_its_name(add_output: Callable[..., Output]) -> None:
    output = add_output(prompt="CON <lora:paper:0.8>", seed=42)
    assert name_download(output, ".png") == "con-42.png"
    assert name_download(add_output(prompt="<3", seed=2**63 - 1), ".webp") == "3-9223372036854775807.webp"
    assert name_download(add_output(prompt="...", seed=1), ".png") == "image-1.png"


def test_of_several_no_two_have_the_same_name(add_output: Callable[..., Output]) -> None:
    outputs = [add_output(prompt=prompt, seed=7) for prompt in ("A boat", "a boat!", "A boat, 7-2", "A BOAT")]
    names = [name for _, name in name_downloads(outputs)]
    assert names == ["a-boat-7.png", "a-boat-7-2.png", "a-boat-7-2-7.png", "a-boat-7-3.png"]
