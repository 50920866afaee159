"""A GIF is looked through before it is decoded; those of programs pass."""

import io
import itertools

import pytest
from PIL import Image

from pipelines.pictures.gif_blocks import MAX_TEXT_BYTES, holds_too_much

HEAD = b"GIF89a" + bytes(7)
COMMENT = b"!\xfe"
BLOCK = b"\xff" + bytes(255)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("comment", ["", "a boat " * 10_000])
def test_what_programs_write_passes_and_is_read_from_its_beginning(frames: int, comment: str) -> None:
    file = io.BytesIO()
    first, *others = (Image.effect_noise((300, 200), 90 + frame) for frame in range(frames))
    first.save(file, "GIF", save_all=True, append_images=others, comment=comment.encode())
    file.seek(0)
    assert not holds_too_much(file)
    assert Image.open(file).size == (300, 200)


@pytest.mark.parametrize(
    "body",
    [
        COMMENT + BLOCK * (MAX_TEXT_BYTES // 255 + 1),
        (COMMENT + BLOCK * 40 + b"\0") * 100,
        COMMENT + b"\x01a" * 300_000,
        (b"!\xff\0") * 300_000,
        b"," + bytes(10) + b"\x01a" * 300_000,
    ],
    ids=["one comment", "many comments", "short blocks", "empty extensions", "a frame of short blocks"],
)
def test_what_no_program_writes_does_not(body: bytes) -> None:
    assert holds_too_much(io.BytesIO(HEAD + body))


def test_a_torn_one_is_left_to_the_decoder() -> None:
    whole = HEAD + COMMENT + BLOCK * 3 + b"\0," + bytes(10) + BLOCK
    assert not any(
        holds_too_much(io.BytesIO(whole[:length])) for length in itertools.chain(range(40), range(900, 1060))
    )
