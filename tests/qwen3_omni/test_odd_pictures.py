"""Pictures of rare kinds look to the model as they look to a person."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from antiphon.pipelines.qwen3_omni.media import pictures
from antiphon.pipelines.qwen3_omni.media.budget import Budget


def seen(image: Image.Image, format: str = "PNG", **options: Any) -> np.ndarray:
    held = io.BytesIO()
    image.save(held, format, **options)
    return np.asarray(pictures.open_image(held.getvalue(), Budget(), "it")).astype(int)


@pytest.mark.parametrize("format", ["PNG", "WEBP", "TIFF", "GIF"])
def test_what_is_transparent_is_white(format: str) -> None:
    """A drawing in black on nothing, and most programs write nothing as transparent black."""
    drawing = Image.new("RGBA", (8, 4), (0, 0, 0, 0))
    drawing.paste((0, 0, 0, 255), (0, 0, 4, 4))
    options = {"lossless": True, "exact": True} if format == "WEBP" else {}
    made = seen(drawing, format, **options)
    assert made[:, :4].max() == 0 and made[:, 4:].min() == 255


def test_half_transparent_is_half_of_it_on_white() -> None:
    assert abs(seen(Image.new("RGBA", (2, 2), (0, 0, 0, 128))) - 127).max() <= 1
    assert abs(seen(Image.new("LA", (2, 2), (0, 64))) - 191).max() <= 1


def test_a_transparent_colour_of_a_palette_is_white() -> None:
    drawing = Image.new("P", (8, 4), 1)
    drawing.putpalette([0, 0, 0, 10, 10, 10])
    drawing.paste(0, (0, 0, 4, 4))
    made = seen(drawing, transparency=1)
    assert made[:, :4].max() == 0 and made[:, 4:].min() == 255


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_are_grey(format: str) -> None:
    steps = np.array([[0, 257, 32768, 65535]], np.uint16)
    assert seen(Image.fromarray(steps), format).tolist() == [[[0] * 3, [1] * 3, [128] * 3, [255] * 3]]
