"""The order once more, in NumPy and by the definition: slow, and easy to read."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def greedy_order(doubt: Array, features: Array, labeled: Array, count: int) -> list[int]:
    x = features / np.linalg.norm(features, axis=1, keepdims=True)
    known = labeled / np.linalg.norm(labeled, axis=1, keepdims=True)
    to_known = ((x[:, None] - known[None]) ** 2).sum(axis=2)
    scale = to_known.min(axis=1).mean()
    near_known = np.exp(-to_known / scale)
    near = np.exp(-((x[:, None] - x[None]) ** 2).sum(axis=2) / scale)
    chosen: list[int] = []
    for _ in range(count):
        values = {}
        for candidate in set(range(len(doubt))) - set(chosen):
            close = np.concatenate([near_known, near[:, [*chosen, candidate]]], axis=1)
            values[candidate] = float((doubt * close.max(axis=1)).sum())
        chosen.append(max(values, key=values.__getitem__))
    return chosen
