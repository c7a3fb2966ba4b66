"""The data of a run: training samples, their labels, and the test part."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dualstudent.data.broken import Tally
from dualstudent.data.datasets import Labels
from dualstudent.data.packed import get_packed, pack_fields
from dualstudent.data.samples import Samples, hash_tensor
from dualstudent.settings import Settings


class Origin(NamedTuple):
    """What data were prepared from; equal origins give equal data and views."""

    settings: Settings
    seed: int
    transforms: Settings
    normalization: Settings


@pack_fields("labels", "labeled", "unlabeled")
@dataclass(frozen=True, eq=False)
class PreparedData:
    """The data of a run. It does not contain the hidden labels of unlabeled samples.

    Labels and indices take a byte or two of an image; reading one of these attributes makes a new
    tensor. To change them, change a copy and use :func:`dataclasses.replace`.

    Attributes:
        classes: the names of the C classes.
        train: N training samples. Samples in neither ``labeled`` nor ``unlabeled`` are not used.
        labels: (N,) int64, −1 where unknown to the run.
        labeled: indices of the samples with a label.
        unlabeled: indices of the samples that the unsupervised terms use; of two domains, samples
            of the target only.
        test: the test or validation part; may be empty.
        test_labels: int64, all known.
        source: the data set that the labels come from; its samples are the first of ``train``.
            None for data from Python.
        test_files: the files of ``test``, for own images.
        unreadable: number of own image files that cannot be read.
        is_target: (N,) bool, which training samples are of the target domain; None if there is
            only one domain.
        origin: what these data were prepared from; None for data from Python.
        trunk: settings of the trunk whose features the samples are; None if there is none.
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
    is_target: Tensor | None = None
    origin: Origin | None = None
    trunk: Settings | None = None

    @cached_property
    def _fingerprint(self) -> str:  # cached, because it reads all samples
        digest = hashlib.sha256()
        self.train.update_digest(digest)
        hash_tensor(digest, self.labels)
        self.test.update_digest(digest)
        hash_tensor(digest, self.test_labels)
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """Return the SHA-256 of training samples, their labels, and the test part."""
        return self._fingerprint

    def test_fingerprint(self) -> str:
        """Return the SHA-256 of the test part: runs with equal ones can be compared."""
        digest = hashlib.sha256(repr(self.classes).encode())
        self.test.update_digest(digest)
        hash_tensor(digest, self.test_labels)
        return digest.hexdigest()

    @property
    def tally(self) -> Tally | None:
        """Counts unreadable samples of training and test; None if all can be read."""
        return self.train.tally

    @property
    def fully_labeled(self) -> bool:
        """Whether all samples are labeled; the unsupervised terms then use the labeled samples."""
        same_number = len(get_packed(self, "labeled")) == len(get_packed(self, "unlabeled"))
        return same_number and torch.equal(self.labeled, self.unlabeled)
