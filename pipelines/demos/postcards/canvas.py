"""A supersampled picture to draw on: polygons, ellipses, bars, slopes and glows, antialiased when finished."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from pipelines.demos.postcards.light import Light, Rgb, mix

SUPERSAMPLING = 3

Point = tuple[float, float]


class Canvas:
    """A supersampled picture with lengths relative to the shorter side and positions relative to both."""

    def __init__(self, sky: np.ndarray, light: Light) -> None:
        image = Image.fromarray(sky)
        self.image = image.resize((image.width * SUPERSAMPLING, image.height * SUPERSAMPLING), Image.Resampling.NEAREST)
        self.pen = ImageDraw.Draw(self.image)
        self.width, self.height = self.image.size
        self.unit = min(self.image.size)
        self.light = light
        self.glows: list[tuple[float, float, float, Rgb]] = []

    def copy(self) -> Canvas:
        """Copies the current picture, to be drawn on separately."""
        twin = copy.copy(self)
        twin.image = self.image.copy()
        twin.pen = ImageDraw.Draw(twin.image)
        twin.glows = list(self.glows)
        return twin

    def land(self, colour: Rgb, depth: float = 0.0) -> Rgb:
        """Returns a landscape colour under this light, `depth` of the way into the haze."""
        light = self.light
        red, green, blue = (round(c * gain) for c, gain in zip(colour, light.land_gain, strict=True))
        return mix((red, green, blue), light.haze, light.land_haze + depth * (1 - light.land_haze))

    def paint(self, colour: Rgb) -> Rgb:
        """Returns a subject's colour under this light, changed far less than a landscape's to keep its name."""
        red, green, blue = (round(c * gain) for c, gain in zip(colour, self.light.subject_gain, strict=True))
        return red, green, blue

    def polygon(self, points: Sequence[Point], colour: Rgb) -> None:
        self.pen.polygon(points, fill=colour)

    def ellipse(self, centre: Point, radii: Point, colour: Rgb) -> None:
        (x, y), (rx, ry) = centre, radii
        self.pen.ellipse((x - rx, y - ry, x + rx, y + ry), fill=colour)

    def bar(self, start: Point, end: Point, colour: Rgb, *, radius: float = 0.0) -> None:
        self.pen.rounded_rectangle((*start, *end), radius=radius, fill=colour)

    def slope(self, outline: Sequence[Point], top: Rgb, bottom: Rgb) -> None:
        """Fills everything under the outline, from left edge to right edge, with a vertical gradient."""
        first_row = max(0, int(min(y for _, y in outline)))
        rows = self.height - first_row
        share = np.linspace(0, 1, rows)[:, None, None]
        column = (np.array(top) * (1 - share) + np.array(bottom) * share).round().astype(np.uint8)
        gradient = Image.fromarray(column).resize((self.width, rows), Image.Resampling.NEAREST)
        mask = Image.new("L", (self.width, rows))
        corners = [(float(self.width), float(rows)), (0.0, float(rows))]
        ImageDraw.Draw(mask).polygon([*((x, y - first_row) for x, y in outline), *corners], fill=255)
        self.image.paste(gradient, (0, first_row), mask)

    def glow(self, centre: Point, radius: float, colour: Rgb) -> None:
        """Adds a glow, which is drawn over the finished picture."""
        self.glows.append((*centre, radius, colour))

    def finish(self) -> np.ndarray:
        picture = np.asarray(self.image.reduce(SUPERSAMPLING))
        if not self.glows:
            return picture
        bright = picture.astype(np.float32)
        rows = np.arange(bright.shape[0], dtype=np.float32)[:, None]
        columns = np.arange(bright.shape[1], dtype=np.float32)[None]
        for x, y, radius, colour in self.glows:
            far = ((columns - x / SUPERSAMPLING) ** 2 + (rows - y / SUPERSAMPLING) ** 2) / (radius / SUPERSAMPLING) ** 2
            bright += (255 - bright) * (np.exp(-far * 2)[..., None] * np.array(colour, np.float32) / 255)
        return bright.clip(0, 255).round().astype(np.uint8)
