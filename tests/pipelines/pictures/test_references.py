"""Which programs pictures beside a recipe need, said without loading anything."""

from pathlib import Path

import pytest
from PIL import Image

from pipelines.models.catalog import Catalog, Shape
from pipelines.pictures.reading import measure_picture, open_picture
from pipelines.pictures.references import References, choose_references, choose_size, name_programs

SHAPES = tuple(map(Shape.parse, ("1024x1024", "1280x768", "768x1280", "1408x1408", "512x512")))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((3000, 3000), "1024x1024"),
        ((600, 620), "512x512"),
        ((100, 90), "512x512"),
        ((1920, 1080), "1280x768"),
        ((1080, 2400), "768x1280"),
    ],
)
def test_a_picture_takes_the_nearest_proportions_it_fills(size: tuple[int, int], expected: str) -> None:
    assert choose_size(size, SHAPES) == Shape.parse(expected)


def test_the_first_picture_chooses_the_size_of_all(catalog: Catalog) -> None:
    found = choose_references(catalog.get("flux2-dev"), [(1920, 1080), (500, 500)])
    assert found == References(count=2, size=Shape(width=1344, height=768))
    assert name_programs("512x512", found) == "512x512 with 2 of 1344x768"


def test_pictures_of_other_models_change_no_program(catalog: Catalog) -> None:
    assert choose_references(catalog.get("wan2.1-i2v-14b"), [(1920, 1080)]) is None
    assert choose_references(catalog.get("flux2-dev"), []) is None
    assert name_programs("512x512", None) == "512x512"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_measured_as_it_will_be_opened(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (60, 40)).save(tmp_path / "photo.jpg", exif=exif)
    assert measure_picture(tmp_path / "photo.jpg") == open_picture(tmp_path / "photo.jpg").size
