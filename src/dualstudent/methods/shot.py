"""SHOT: learn from the source, keep the class head, and bring the target's features to it.

Liang et al., Do we really need to access the source data? Source hypothesis transfer for
unsupervised domain adaptation, ICML 2020. First only ℒ_cls on the labels, of the target, too, if
there are some; then the class head is kept, and only target samples are used, without labels. With
p the predictions and p̄ their mean:

    ℒ = mean of H(p) − H(p̄) + β · CE(p, ŷ),   ŷ the class of the nearest centroid

The pseudo-labels ŷ are found after the last source epoch, and anew after every epoch on the target.
Without a source epoch, in a stage of its own (``source_share = 0``), the first epoch has none.

The network is any; the authors' has a bottleneck with batch norm before a class head with weight
normalization.
"""

import math
from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent import losses
from dualstudent.adversarial import evaluation_mode
from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.errors import UserError
from dualstudent.methods.centroids import label_by_centroids
from dualstudent.methods.consistency import Weight
from dualstudent.methods.method import Method, MethodSettings, StudentLoss, Task
from dualstudent.networks.layers import DecoupledHeads
from dualstudent.prediction import Prediction


class SHOTSettings(MethodSettings):
    """The defaults are those of the authors for digits, who also smooth labels by 0.1."""

    name: Literal["shot"] = "shot"
    source_share: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="share of the epochs, the first ones, that learn from labels only; 0 in a "
        "stage after one that did, whose first epoch then has no pseudo-labels",
    )
    entropy_weight: Weight = Field(1.0, description="weight of confident predictions")
    balance_weight: Weight = Field(1.0, description="weight of equally frequent classes")
    pseudo_label_weight: Weight = Field(0.1, description="β, weight of the centroids' labels")


class SHOT(Method):
    """One student; only its class head is used. It stores 8 bytes per sample.

    Attributes:
        adapts: whether the labels have been learned, and the target is used now.
        pseudo_labels: (N,) int64, −1 where there is none.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = SHOT([DigitsCNN()])
        >>> method.begin(Task(2, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> [sorted(loss.terms) for loss in method.losses(Batch((images,), labels), ramp=1.0)]
        [['balance', 'classification', 'entropy', 'pseudo_labels']]
    """

    summary = "SHOT: learns the labels, then brings the target to the class head that it keeps"
    Settings = SHOTSettings
    target_terms = frozenset({"entropy", "balance", "pseudo_labels"})
    lone_unlabeled = True
    settings: SHOTSettings
    views = ONE_VIEW
    steady = False  # the class head is kept from some epoch on
    adapts: Tensor
    pseudo_labels: Tensor

    def begin(self, task: Task) -> None:
        student = self.students[0]
        kept = {id(weight) for head in _find_heads(student) for weight in head.parameters()}
        if all(id(weight) in kept for weight in student.parameters()):
            raise UserError(
                "shot keeps the class head while it adapts, and this network has nothing else to "
                "train; give it a layer, for example network.name = 'mlp', network.hidden = [256]"
            )
        self._source_epochs = math.ceil(self.settings.source_share * task.epochs)
        self.register_buffer("adapts", torch.tensor(self._source_epochs == 0))
        self.register_buffer("pseudo_labels", torch.full((task.samples,), -1))

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        settings, student, adapts = self.settings, self.students[0], bool(self.adapts)
        for head in _find_heads(student):
            head.requires_grad_(not adapts)
        rows = batch.targets if adapts else batch.labels >= 0
        logits: Tensor = student(batch.views[0][rows]).class_logits
        given, guessed = batch.labels[rows], self.pseudo_labels[batch.indices[rows]]
        now, later = float(not adapts), float(adapts)  # the terms of one phase are 0 in the other
        by_centroids = F.cross_entropy(logits, guessed, ignore_index=-1, reduction="sum")
        terms = {
            "classification": now * settings.compute_classification(logits, given),
            "entropy": later * settings.entropy_weight * losses.entropy(logits).mean(),
            "balance": -later * settings.balance_weight * losses.mean_entropy(logits),
            "pseudo_labels": later * settings.pseudo_label_weight * by_centroids / len(logits),
        }
        return [StudentLoss(terms)]

    @torch.no_grad()
    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        if epoch + 1 < self._source_epochs:
            return
        self.adapts.fill_(True)
        indices, features, probabilities = [], [], []
        with evaluation_mode(self.students[0]):
            for batch in batches:
                found: Prediction = self.students[0](batch.views[0][batch.targets])
                indices.append(batch.indices[batch.targets])
                features.append(found.features)
                probabilities.append(found.class_logits.softmax(dim=1))
        self.pseudo_labels.fill_(-1)
        labels = label_by_centroids(torch.cat(features), torch.cat(probabilities))
        self.pseudo_labels[torch.cat(indices)] = labels


def _find_heads(student: nn.Module) -> list[DecoupledHeads]:
    return [part for part in student.modules() if isinstance(part, DecoupledHeads)]
