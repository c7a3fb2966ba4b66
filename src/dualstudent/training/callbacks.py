"""Callbacks of a training."""

from typing import Any


class Callback:
    """Receives the progress of a training. Subclass it to show progress or log metrics.

    Example:
        >>> class PrintLoss(Callback):
        ...     def on_epoch(self, record):
        ...         print(record["epoch"], record["loss"])
    """

    def on_start(self, step: int, total: int) -> None:
        """Called when the training starts or continues at ``step`` of ``total``."""

    def on_step(self, step: int) -> None:
        """Called after every step, when ``step`` steps are done."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Called after every epoch; ``record`` is its line in the metrics."""
