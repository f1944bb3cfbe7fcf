"""A model of a network: a message takes alpha + size times beta. measure.py fits it."""


def fit(sizes_kb: list[int], times_ns: list[int]) -> tuple[float, float]:
    """alpha in nanoseconds, and beta in nanoseconds for 1000 bytes, by least squares."""
    mean_kb = sum(sizes_kb) / len(sizes_kb)
    mean_ns = sum(times_ns) / len(times_ns)
    both = sum((x - mean_kb) * (y - mean_ns) for x, y in zip(sizes_kb, times_ns, strict=True))
    beta = both / sum((x - mean_kb) ** 2 for x in sizes_kb)
    return mean_ns - beta * mean_kb, beta
