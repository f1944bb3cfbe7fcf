"""Sizes that the original keeps in 32 bits with a sign on their way."""

from analysis.astra.errors import AstraRefused

_RANGE = 1 << 32


def kept_in_32_bits(size_bytes: int, where: str) -> int:
    """What is left of a size. Raises AstraRefused where that is negative, naming `where`."""
    kept = (size_bytes + _RANGE // 2) % _RANGE - _RANGE // 2
    if kept < 0:
        raise AstraRefused(
            f"a message of {size_bytes} bytes with {where}: ASTRA-sim keeps its size in 32 bits "
            "with a sign, and what it does with the rest has no meaning"
        )
    return kept
