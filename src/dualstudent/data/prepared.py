"""What a run may see: samples, the labels it was given, and what it is evaluated on."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from dualstudent.data.batching.broken import Tally
from dualstudent.data.datasets import Labels
from dualstudent.data.samples import Samples, hash_tensor
from dualstudent.settings import Settings


@dataclass(frozen=True)
class PreparedData:
    """What a run sees. The labels of unlabeled and target samples are not in here.

    Attributes:
        classes: the names of the C classes.
        train: N samples, those of the source and, after them, those of the target. What is
            neither labeled nor unlabeled takes no part.
        labels: (N,) int64, −1 wherever the run was given no label.
        labeled: indices of the samples with a label.
        unlabeled: indices of the samples on which students teach each other.
        test: what the run is evaluated on, which may be a validation part; may be empty.
        test_labels: int64, all known.
        source: the data set that the labels come from, its samples the first of ``train``; None
            for data handed over.
        test_files: of the samples of ``test``, if they are images of one's own.
        unreadable: how many image files of one's own cannot be read.
        target_from: index of the first training sample of the target; None without a target.
        settings: what these data were prepared from; None for data handed over.
    """

    classes: tuple[str, ...]
    train: Samples
    labels: Tensor
    labeled: Tensor
    unlabeled: Tensor
    test: Samples
    test_labels: Tensor
    source: Labels | None = None
    test_files: tuple[Path, ...] = ()
    unreadable: int = 0
    target_from: int | None = None
    settings: Settings | None = None

    @property
    def domains(self) -> Tensor:
        """(N,) int64, the domain of each training sample: 0 for the source, 1 for the target."""
        if self.target_from is None:
            return torch.zeros_like(self.labels)
        return (torch.arange(len(self.labels)) >= self.target_from).long()

    @cached_property
    def _fingerprint(self) -> str:  # once: it reads all samples
        digest = hashlib.sha256()
        self.train.update_digest(digest)
        hash_tensor(digest, self.labels)
        self.test.update_digest(digest)
        hash_tensor(digest, self.test_labels)
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """A SHA-256 of all that the run sees: samples, the labels it was given, and the test."""
        return self._fingerprint

    def test_fingerprint(self) -> str:
        """A SHA-256 of what the run is evaluated on: equal exactly if figures can be compared."""
        digest = hashlib.sha256(repr(self.classes).encode())
        self.test.update_digest(digest)
        hash_tensor(digest, self.test_labels)
        return digest.hexdigest()

    @property
    def tally(self) -> Tally | None:
        """Of the samples that cannot be read, in training and test; None if all can."""
        return self.train.tally

    @property
    def fully_labeled(self) -> bool:
        """The fully supervised case, in which labeled samples also teach like unlabeled ones."""
        return torch.equal(self.labeled, self.unlabeled)
