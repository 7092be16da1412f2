"""Ratios of alternating pairs: the median and its 95 % interval, from order statistics.

Source: the interval of a median from ranks of the sample needs no assumption about its distribution
(binomial, p = 1/2). With 20 pairs these are the 6th and the 15th smallest ratio.
"""

from math import comb


def interval_ranks(count: int, confidence: float = 0.95) -> tuple[int, int]:
    """Ranks (from 0) of the smallest symmetric interval around the median that holds `confidence`."""
    best = (0, count - 1)
    for low in range(count // 2):
        inside = sum(comb(count, k) for k in range(low + 1, count - low)) / 2**count
        if inside < confidence:
            break
        best = (low, count - 1 - low)
    return best


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def summarise(pairs: list[tuple[float, float]]) -> dict:
    """`pairs` of (ours, peer), both such that more is better."""
    in_turn = [ours / peer for ours, peer in pairs]
    ratios = sorted(in_turn)
    low, high = interval_ranks(len(ratios))
    return {
        "pairs": len(pairs),
        "ratios": in_turn,
        "ours": median([ours for ours, _ in pairs]),
        "peer": median([peer for _, peer in pairs]),
        "ratio": median(ratios),
        "low": ratios[low],
        "high": ratios[high],
    }
