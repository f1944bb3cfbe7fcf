"""Your model of a network: a message takes alpha + size times beta. measure.py fits it."""


def fit(sizes_kb: list[int], times_ns: list[int]) -> tuple[float, float]:
    """alpha in nanoseconds, and beta in nanoseconds for 1000 bytes, of messages that were measured.

    TODO: what stands here takes the last message alone, and says that a message of no bytes takes
    no time. Make it the line with the least sum of squared errors. With X and Y for the means of
    sizes x and times y:
        beta  = sum of (x - X) (y - Y), divided by the sum of (x - X) squared
        alpha = Y - beta X
    """
    return 0.0, times_ns[-1] / sizes_kb[-1]
