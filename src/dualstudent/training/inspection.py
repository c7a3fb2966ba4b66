"""Looks for doubtful images and labels among the features of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dualstudent.data.prepared import PreparedData
from dualstudent.training.crossvalidation import divide_labels
from dualstudent.training.on_features import cross_validate_baselines, read_features
from dualstudent.trunks.baselines import choose_training
from dualstudent.trunks.findings import find_lookalikes, find_suspects, find_unlike
from dualstudent.trunks.samples import pick_some

KINDS = {
    "suspects": "labels that may be wrong",
    "lookalikes": "pairs that may be copies",
    "unlike": "unlabeled images unlike all labeled ones",
}
_KEPT = 50  # of each kind


@dataclass(frozen=True)
class Found:
    """One or two images to look at.

    Attributes:
        images: their indices among the training samples.
        value: how sure the answer is, or the similarity, in [−1, 1].
        answer: the class that was predicted without the given label; None if that is no matter.
    """

    images: tuple[int, ...]
    value: float
    answer: int | None = None


@dataclass(frozen=True)
class Inspection:
    """What was found: numbers of all, and the first 50 of each kind.

    Attributes:
        counts: kind → how many there are.
        suspects: labels that are probably wrong, the surest first.
        lookalikes: pairs that are probably copies, the most similar first.
        unlike: unlabeled images that resemble no labeled one, the most unlike first.
    """

    counts: Mapping[str, int]
    suspects: tuple[Found, ...]
    lookalikes: tuple[Found, ...]
    unlike: tuple[Found, ...]

    def describe_counts(self) -> str:
        """Say how many of each kind there are."""
        return ", ".join(f"{what}: {self.counts[kind]:,}" for kind, what in KINDS.items())


def inspect_features(data: PreparedData, seed: int) -> Inspection:
    """Look for doubtful labels, copies, and images unlike all labeled ones, in bounded memory.

    It looks at 10,000 labeled and 10,000 unlabeled images, if there are more. A label is compared
    with the answers of all baselines without it (cross-validation), if they agree.

    Args:
        data: with features of a trunk as samples.
        seed: chooses the images, and divides the labels.
    """
    some = torch.from_numpy(pick_some(len(data.labeled)))
    data = replace(data, labeled=data.labeled[some])
    labels = data.labels[data.labeled].numpy()
    answers = _find_agreed_answers(data, seed)
    indices = choose_training(data, seed)
    vectors, known = read_features(data.train, indices), len(labels)
    suspects = find_suspects(labels, answers)
    pairs, similarity = find_lookalikes(vectors)
    unlike, distances = find_unlike(vectors[known:], vectors[:known])
    return Inspection(
        {"suspects": len(suspects), "lookalikes": len(pairs), "unlike": len(unlike)},
        tuple(
            Found(
                (int(indices[row]),), float(answers[row].max()), answer=int(answers[row].argmax())
            )
            for row in suspects[:_KEPT]
        ),
        tuple(
            Found((int(indices[a]), int(indices[b])), float(value))
            for (a, b), value in zip(pairs[:_KEPT], similarity, strict=False)
        ),
        tuple(
            Found((int(indices[known + row]),), float(value))
            for row, value in zip(unlike[:_KEPT], distances, strict=False)
        ),
    )


def _find_agreed_answers(data: PreparedData, seed: int) -> NDArray[np.float64]:
    """(n, C), the mean probabilities of all baselines for each label, hidden; NaN if they differ.

    One of them alone is often sure of a wrong answer, if labels are few.
    """
    folds = divide_labels(data, seed)
    found = np.stack(list(cross_validate_baselines(data, folds, seed).values()))
    classes = found.argmax(axis=2)
    return np.where((classes == classes[0]).all(axis=0)[:, None], found.mean(axis=0), np.nan)


def read_inspection(result: Mapping[str, Any]) -> Inspection | None:
    """Return what the result of a run says was found; None if nobody looked."""
    if (found := result.get("inspection")) is None:
        return None
    kinds = {
        kind: tuple(Found(tuple(each["images"]), each["value"], each["answer"]) for each in listed)
        for kind, listed in found.items()
        if kind != "counts"
    }
    return Inspection(found["counts"], **kinds)
