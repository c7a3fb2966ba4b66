"""What is told how a training goes."""

from typing import Any


class Callback:
    """Is told how far a training is; this one does nothing with it.

    Subclass it to show progress or to send metrics elsewhere.

    Example:
        >>> class PrintLoss(Callback):
        ...     def on_epoch(self, record):
        ...         print(record["epoch"], record["loss"])
    """

    def on_start(self, step: int, total: int) -> None:
        """The training starts or continues at ``step`` of ``total``."""

    def on_step(self, step: int) -> None:
        """``step`` steps are done."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done; ``record`` is its line in the metrics."""
