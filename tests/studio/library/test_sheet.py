"""The sheet of a grid: every picture at its place, labels beside them, reasons where there is none."""

from pathlib import Path

import numpy as np
from PIL import Image

from studio.library import lettering
from studio.library.lettering import Lettering
from studio.library.sheet import EMPTY, MAX_PIXELS, Cell, Table, draw_sheet

COLOURS = ("red", "green", "blue", "yellow", "cyan", "magenta", "black", "orange")


def make_places(folder: Path, count: int, *, size: tuple[int, int] = (80, 60)) -> list[Cell]:
    places = []
    for colour in COLOURS[:count]:
        Image.new("RGB", size, colour).save(folder / f"{colour}.png")
        places.append(Cell(file=folder / f"{colour}.png"))
    return places


def find_boxes(sheet: Image.Image, *colours: str) -> list[tuple[int, int, int, int]]:
    """Where each colour is: left, top, right, bottom."""
    pixels = np.asarray(sheet)
    boxes = []
    for colour in colours:
        wanted = Image.new("RGB", (1, 1), colour).getpixel((0, 0))
        rows, columns = np.nonzero((pixels == wanted).all(axis=2))
        boxes.append((int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1))
    return boxes


def test_pictures_stand_in_columns_rows_and_pages_in_full_size(tmp_path: Path) -> None:
    places = make_places(tmp_path, 8)
    table = Table(places=places, columns=["a", "b"], rows=["1", "2"], pages=["first", "second"], caption="all of it")
    red, green, blue, yellow, cyan = find_boxes(draw_sheet(table), *COLOURS[:5])
    for box in (red, green, blue, yellow, cyan):
        assert (box[2] - box[0], box[3] - box[1]) == (80, 60)
    assert red[1] == green[1] and red[2] < green[0]
    assert red[0] == blue[0] and red[3] < blue[1]
    assert (yellow[0], yellow[1]) == (green[0], blue[1])
    assert cyan[0] == red[0] and cyan[1] > blue[3]


def test_labels_take_room_and_leave_none_where_there_are_none(tmp_path: Path) -> None:
    places = make_places(tmp_path, 2)
    bare = draw_sheet(Table(places=places, columns=["", ""]))
    sides = draw_sheet(Table(places=places, columns=[""], rows=["Steps 4", "Steps 8"]))
    heads = draw_sheet(Table(places=places, columns=["Steps 4", "Steps 8"]))
    assert find_boxes(sides, "red")[0][0] > find_boxes(bare, "red")[0][0] + 30
    assert find_boxes(heads, "red")[0][1] > find_boxes(bare, "red")[0][1] + 10
    above = np.asarray(heads.crop((0, 0, heads.width, find_boxes(heads, "red")[0][1])))
    assert above.min() < 100, "the label is drawn"


def test_a_missing_picture_is_an_empty_cell_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "torn.png").write_bytes(b"no picture")
    places = [
        *make_places(tmp_path, 1),
        Cell(file=None, note="cancelled"),
        Cell(file=None),
        Cell(file=tmp_path / "torn.png"),
    ]
    sheet = draw_sheet(Table(places=places, columns=["a", "b"], rows=["1", "2"]))
    red, empty = find_boxes(sheet, "red", EMPTY)
    assert (empty[2] - empty[0], empty[3] - empty[1]) == (red[2] - red[0] + empty[2] - red[2], empty[3] - red[1])
    cell = np.asarray(sheet.crop((red[2] + 4, red[1], empty[2], red[3])))
    assert len(np.unique(cell)) > 2, "the reason is drawn"


def test_pictures_of_several_sizes_stand_in_the_middle(tmp_path: Path) -> None:
    Image.new("RGB", (40, 90), "red").save(tmp_path / "tall.png")
    Image.new("RGB", (120, 50), "blue").save(tmp_path / "wide.png")
    places = [Cell(file=tmp_path / "tall.png"), Cell(file=tmp_path / "wide.png")]
    tall, wide = find_boxes(draw_sheet(Table(places=places, columns=["a", "b"])), "red", "blue")
    assert (tall[2] - tall[0], tall[3] - tall[1], wide[2] - wide[0], wide[3] - wide[1]) == (40, 90, 120, 50)
    assert (tall[1] + tall[3]) // 2 == (wide[1] + wide[3]) // 2


def test_a_large_grid_is_made_smaller_as_a_whole(tmp_path: Path) -> None:
    place = make_places(tmp_path, 1, size=(1024, 1024))[0]
    labels = [str(number) for number in range(6)]
    sheet = draw_sheet(Table(places=[place] * 36, columns=labels, rows=labels))
    assert MAX_PIXELS * 0.8 < sheet.width * sheet.height <= MAX_PIXELS * 1.05


def test_long_labels_end_with_an_ellipsis_and_break_at_words() -> None:
    letters = Lettering(16)
    lines = letters.wrap("a very long prompt about nothing in particular that goes on", width_px=90, lines=2)
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert all(letters.measure(line) <= 90 for line in lines)
    assert letters.wrap("short", width_px=90, lines=2) == ["short"]
    assert len(letters.wrap("x" * 500, width_px=90, lines=3)) == 3
    assert letters.wrap("", width_px=90, lines=3) == []


def test_characters_come_from_a_font_that_has_them() -> None:
    assert lettering.find_font("é") == lettering.OWN[0]
    assert lettering.find_font("ą") == lettering.OWN[1]
    assert lettering.find_font(lettering.NOWHERE) == lettering.OWN[0], "nobody has it"


def test_any_text_can_be_measured_and_drawn() -> None:
    letters = Lettering(20)
    for text in (
        "红色的船",
        "лодка",
        "قارب أحمر",
        "⛵ 👩‍👩‍👧",
        "line\nbreak\ttab",
        "\x00\x07\u202e\ufeff",
        "\ud7ff\U0010ffff",
    ):
        sheet = draw_sheet(Table(places=[Cell(file=None, note=text)], columns=[text], rows=[text], caption=text))
        assert sheet.width > 0
        assert letters.measure(lettering.clean(text)) >= 0
    assert lettering.clean("line\nbreak\x07") == "line break"
