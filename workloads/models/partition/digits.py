"""Images that are made here: the ten digits of a seven-segment display, drawn with noise.

Nothing is read and nothing is fetched, so that a network can be trained wherever a spec is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SIDE = 12
"""Pixels along an image's edge."""
CLASSES = 10
_HEIGHT, _WIDTH = 9, 5
"""The height and the width of a digit, in pixels."""
_NOISE = 0.2
"""Standard deviation of what is added to each pixel; a segment has 1 before it is faded."""
_FADED = 0.5
"""The least brightness of a segment."""
PIXEL_GRID = 256
"""Pixels are multiples of its inverse, so that text files hold them exactly."""

# Rows and columns of the segments a to g, and the segments of each digit.
_SEGMENTS = {
    "a": (slice(0, 1), slice(0, 5)),
    "b": (slice(0, 5), slice(4, 5)),
    "c": (slice(4, 9), slice(4, 5)),
    "d": (slice(8, 9), slice(0, 5)),
    "e": (slice(4, 9), slice(0, 1)),
    "f": (slice(0, 5), slice(0, 1)),
    "g": (slice(4, 5), slice(0, 5)),
}
_DIGITS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")


@dataclass(frozen=True, eq=False)
class Images:
    """`pixels` (images, SIDE * SIDE), row after row; `labels` (images,), the digits."""

    pixels: Floats
    labels: Ints


def drawn(count: int, random: np.random.Generator) -> Images:
    """So many digits, each at a place of its own, every segment faded and every pixel noisy."""
    labels = random.integers(0, CLASSES, count)
    canvas = np.zeros((count, SIDE, SIDE))
    down = random.integers(1, SIDE - _HEIGHT, count)
    right = random.integers(3, SIDE - _WIDTH - 2, count)
    brightness = random.uniform(_FADED, 1.0, (count, len(_SEGMENTS)))
    for image, label in enumerate(labels.tolist()):
        digit = canvas[image, down[image] :, right[image] :][:_HEIGHT, :_WIDTH]
        for number, (name, place) in enumerate(_SEGMENTS.items()):
            if name in _DIGITS[label]:
                digit[place] = np.maximum(digit[place], brightness[image, number])
    canvas += random.normal(0.0, _NOISE, canvas.shape)
    pixels = np.round(canvas.reshape(count, -1) * PIXEL_GRID) / PIXEL_GRID
    return Images(pixels, labels)
