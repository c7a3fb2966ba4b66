"""Batch norm by domain: source and target are normalized apart.

French et al., Self-ensembling for visual domain adaptation, ICLR 2018, and Chang et al.,
Domain-specific batch normalization for unsupervised domain adaptation, CVPR 2019. The scale and
the shift that batch norm learns are shared, so that a network remains one function of images.

Rows carry their domain with them, as one more channel that is 0 for the source and 1 for the
target. So methods may choose, join and mix rows as they like, and need not know about domains:

    mark_domains(view, domains) → rows of a method → network → the domain of each row

Without this channel, as at test, all rows are of the target. In training, a few rows of one domain
among many of the other have no statistics worth the name, and are normalized with the others. The
statistics of the source then follow all rows of the pass, and so do those of the target until it is
seen for the first time.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from dualstudent.batch import find_targets
from dualstudent.errors import UserError
from dualstudent.prediction import Prediction

SOURCE_STATISTICS = ("source_mean", "source_var")
_FEWEST_ROWS, _SMALLEST_SHARE = 16, 1 / 4  # for statistics of a domain: one of both is enough


class BatchNormByDomain(_BatchNorm):
    """Batch norm with one set of statistics for each domain; the first rows are of the target.

    ``running_mean`` and ``running_var`` are those of the target, as plain batch norm has them, and
    are the source's until the target is seen for the first time.

    Attributes:
        sources: how many rows, the last ones, are normalized as the source in the current pass.
        joins_source: whether rows of the source are normalized with those of the target in it.
        of_vectors: whether the rows are vectors, not feature maps.
    """

    source_mean: Tensor
    source_var: Tensor
    running_mean: Tensor  # never None, as statistics are always kept
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, plain: _BatchNorm) -> None:
        super().__init__(plain.num_features, plain.eps, plain.momentum, plain.affine)
        self.weight, self.bias = plain.weight, plain.bias  # the same initial values
        for own in SOURCE_STATISTICS:
            self.register_buffer(own, torch.empty(plain.num_features))
        self.reset_running_stats()
        self.sources, self.joins_source = 0, False
        self.of_vectors = normalizes_vectors(plain)

    def reset_running_stats(self) -> None:
        """Forget the statistics of both domains."""
        super().reset_running_stats()
        if "source_var" in self._buffers:  # not yet when torch builds the plain part
            self.source_mean.zero_()
            self.source_var.fill_(1)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept rows of any shape, as the layer may have been of any kind."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        """Take the statistics of a plain batch norm, such as published weights, for both."""
        for own, plain in zip(SOURCE_STATISTICS, ("running_mean", "running_var"), strict=True):
            if (known := state.get(prefix + plain)) is not None:
                state.setdefault(prefix + own, known)
        super()._load_from_state_dict(state, prefix, *others)

    def forward(self, rows: Tensor) -> Tensor:
        if self.sources == 0:
            normalized = super().forward(rows)
            if self.joins_source:
                with torch.no_grad():
                    self._normalize_source(rows)  # for its statistics
            return normalized
        target, source = rows.tensor_split([len(rows) - self.sources])
        if len(target):
            return torch.cat([super().forward(target), self._normalize_source(source)])
        normalized = self._normalize_source(source)
        if self.training and self.track_running_stats and not self.num_batches_tracked:
            self.running_mean.copy_(self.source_mean)
            self.running_var.copy_(self.source_var)
        return normalized

    def _normalize_source(self, rows: Tensor) -> Tensor:
        uses_own = not self.training or self.track_running_stats
        mean, var = (self.source_mean, self.source_var) if uses_own else (None, None)
        share = self.momentum
        if share is None:  # a plain mean; each batch has both domains
            share = 1 / max(1, int(self.num_batches_tracked))
        affine = (self.weight, self.bias)
        return F.batch_norm(rows, mean, var, *affine, self.training, share, self.eps)


def normalizes_vectors(layer: nn.Module) -> bool:
    """Return whether a layer is batch norm of vectors, by domain or not.

    Example:
        >>> normalizes_vectors(nn.BatchNorm1d(3)), normalizes_vectors(nn.BatchNorm2d(3))
        (True, False)
    """
    if isinstance(layer, BatchNormByDomain):
        return layer.of_vectors
    return isinstance(layer, nn.BatchNorm1d)


def normalize_by_domain(network: nn.Module, channels: int) -> None:
    """Let all batch norms of a network normalize source and target apart, in place.

    Args:
        network: maps rows to a prediction; its rows may have the channel of
            :func:`~dualstudent.batch.mark_domains`.
        channels: of its images, without this channel.

    Raises:
        UserError: if it has no batch norm.

    Example:
        >>> from dualstudent.batch import mark_domains
        >>> from dualstudent.networks import DigitsCNN
        >>> network = DigitsCNN()
        >>> normalize_by_domain(network, channels=1)
        >>> views = mark_domains(torch.rand(4, 1, 28, 28), torch.tensor([1, 1, 0, 0]))
        >>> network(views).class_logits.shape
        torch.Size([4, 10])
    """
    parents = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    if not parents:
        raise UserError('network.batch_norm = "by-domain": the network has no batch norm')
    for parent, name, child in parents:
        setattr(parent, name, BatchNormByDomain(child))
    network.register_forward_pre_hook(partial(_sort_rows, channels))
    network.register_forward_hook(_restore_rows, always_call=True)


def _sort_rows(channels: int, network: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
    """Take off the mark of the rows, put those of the target first, and tell all layers."""
    (marked,) = inputs
    if marked.shape[1] == channels:
        return None
    targets = find_targets(marked, channels)
    order = torch.argsort(targets, descending=True, stable=True)
    layers = _find_layers(network)
    found = sources = len(targets) - int(targets.sum())
    if any(layer.training for layer in layers):  # also where the network itself is not
        sources = _join_few(found, len(targets))
    for layer in layers:
        layer.sources, layer.joins_source = sources, sources == 0 < found
    network.__dict__["row_order"] = order
    rows = marked[order, :channels]
    last = torch.channels_last if rows.dim() == 4 else torch.contiguous_format
    return (rows.contiguous(memory_format=last),)


def _join_few(sources: int, rows: int) -> int:
    """Count the rows to normalize as the source: a domain with too few joins the other one.

    Example:
        >>> _join_few(sources=20, rows=64), _join_few(15, rows=64), _join_few(60, rows=64)
        (20, 0, 64)
    """
    fewest = max(2, min(_FEWEST_ROWS, _SMALLEST_SHARE * rows))  # one has no variance
    if rows - sources < fewest:
        return rows
    return 0 if sources < fewest else sources


def _restore_rows(
    network: nn.Module, _: tuple[Tensor], prediction: Prediction | None
) -> Prediction | None:
    """Put the rows of a prediction into the order of the input."""
    order = network.__dict__.pop("row_order", None)
    for layer in _find_layers(network):
        layer.sources, layer.joins_source = 0, False
    if order is None or prediction is None:
        return prediction
    back = torch.argsort(order)
    return Prediction(*(each[back] for each in prediction))


def _find_layers(network: nn.Module) -> list[BatchNormByDomain]:
    return [layer for layer in network.modules() if isinstance(layer, BatchNormByDomain)]
