from __future__ import annotations

import gzip
from pathlib import Path

import pytest

_DATA = Path(__file__).parent / "data"


def _unpacked(name: str, factory: pytest.TempPathFactory) -> Path:
    directory = factory.mktemp(name)
    for packed in (_DATA / name).glob("*.gz"):
        (directory / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    for plain in ("collectives.jsonl", "index.json"):
        if (_DATA / name / plain).exists():
            (directory / plain).write_bytes((_DATA / name / plain).read_bytes())
    return directory


@pytest.fixture(scope="session")
def three_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks, every kind of collective, three process groups; see record.py."""
    return _unpacked("three-ranks", tmp_path_factory)


@pytest.fixture(scope="session")
def two_ranks_shaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks behind 500 Mb/s shapers: queues hide preambles in the middle of segments."""
    return _unpacked("two-ranks-shaped", tmp_path_factory)


@pytest.fixture(scope="session")
def jax_four_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four processes of JAX on a slow machine: all-reduces over all, and over each axis of a mesh
    of 2 by 2; all-gathers, all-to-alls, permutations and reduce-scatters over all."""
    return _unpacked("jax-four-ranks", tmp_path_factory)
