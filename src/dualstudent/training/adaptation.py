"""What a network says of samples of both domains, and what is kept of the one before adaptation.

In a run with stages, the last one adapts. The features of a few samples at its beginning are kept
in the folder of the run, so that its page can show what the adaptation did to them.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError, escape_line
from dualstudent.training.checkpoint import check_finite, read_tensors, write_tensors
from dualstudent.training.inference import run_inference
from dualstudent.training.trainer import Trainer

LOOKED_AT = 1000  # training samples of each domain
_DRAWN = 250  # of these


@dataclass(frozen=True)
class Seen:
    """What a network says of n training samples, on the CPU.

    Attributes:
        rows: (n,) int64, the samples; without those that cannot be read.
        predicted: (n,) int64, their classes.
        features: (n, D).
    """

    rows: Tensor
    predicted: Tensor
    features: Tensor

    def select(self, rows: Tensor) -> "Seen":
        """Select some of the samples by ``rows`` (k,), in this order."""
        places = (self.rows == rows[:, None]).int().argmax(dim=1)
        return Seen(rows, self.predicted[places], self.features[places])

    def join(self, other: "Seen") -> "Seen":
        """Add other samples."""
        return Seen(
            torch.cat([self.rows, other.rows]),
            torch.cat([self.predicted, other.predicted]),
            torch.cat([self.features, other.features]),
        )


def choose_evenly(indices: Tensor, most: int) -> Tensor:
    """Choose at most ``most`` of them, evenly spaced.

    Example:
        >>> choose_evenly(torch.arange(10, 20), 4).tolist()
        [10, 13, 16, 19]
    """
    places = torch.linspace(0, len(indices) - 1, min(most, len(indices)))
    return indices[places.long()]


def list_domains(data: PreparedData) -> tuple[Tensor, Tensor]:
    """List the labeled samples of the source, and all training samples of the target, in order."""
    assert data.is_target is not None
    used = torch.zeros_like(data.is_target)
    used[data.labeled] = used[data.unlabeled] = True
    return data.labeled[~data.is_target[data.labeled]], (used & data.is_target).nonzero()[:, 0]


def choose_drawn(data: PreparedData) -> tuple[Tensor, Tensor]:
    """Choose the samples of the source and of the target that the page draws."""
    source, target = (choose_evenly(rows, LOOKED_AT) for rows in list_domains(data))
    return choose_evenly(source, _DRAWN), choose_evenly(target, _DRAWN)


def look_at(trainer: Trainer, rows: Tensor, of_source: bool) -> Seen:
    """Let the exported network of a trainer look at training samples of one domain.

    Args:
        trainer: has the network.
        rows: (N,) int64, at least one sample.
        of_source: whether they are of the source.
    """
    network = trainer.method.evaluated[trainer.method.exported]
    samples, device = trainer.data.train, trainer.fabric.device
    marked = of_source and trainer.recipe.network.batch_norm == "by-domain"
    outputs = list(run_inference({"network": network}, samples, rows, None, device, marked))
    found = [each.clean["network"] for each in outputs]
    return Seen(
        torch.cat([each.indices for each in outputs]).cpu(),
        torch.cat([each.class_logits.argmax(dim=1) for each in found]).cpu(),
        torch.cat([each.features for each in found]).float().cpu(),
    )


def keep_features(trainer: Trainer, path: Path) -> None:
    """Write the features that the exported network has now, of the samples that the page draws.

    No file is written if a domain has no samples to draw. A failure is only a warning, because a
    picture must not end a training.
    """
    try:
        drawn = choose_drawn(trainer.data)
        if not all(map(len, drawn)):
            return
        source, target = look_at(trainer, drawn[0], True), look_at(trainer, drawn[1], False)
        if len(source.rows) and len(target.rows):  # else none of a domain can be read
            seen = source.join(target)
            write_tensors(path, {"rows": seen.rows, "features": seen.features}, {})
    except (UserError, OSError, RuntimeError) as error:
        warnings.warn(
            f"{path} was not written, so that the page shows the samples before adaptation, not "
            f"their features: {escape_line(error)}",
            stacklevel=4,
        )


def read_features(path: Path) -> tuple[Tensor, Tensor]:
    """Read what :func:`keep_features` wrote: rows (n,) int64 and their features (n, D).

    Raises:
        UserError: if the file is damaged, or something else.
    """
    tensors, _ = read_tensors(path)
    rows, features = (tensors.get(key, torch.empty(0)) for key in ("rows", "features"))
    is_whole = rows.dtype == torch.int64 and features.is_floating_point() and features.dim() == 2
    if not is_whole or rows.shape != features.shape[:1] or min(features.shape) < 2:
        raise UserError(f"{path}: does not hold the features of samples; bring it back from a copy")
    check_finite(path, tensors)
    return rows, features
