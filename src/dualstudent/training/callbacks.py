"""Callbacks of a training."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualstudent.recipes.schema import Recipe
    from dualstudent.training.run import Run


class Callback:
    """Receives the progress of a training. Subclass it to show progress or log metrics.

    Example:
        >>> class PrintLoss(Callback):
        ...     def on_epoch(self, record):
        ...         print(record["epoch"], record["loss"])
    """

    def on_run(self, run: "Run", recipe: "Recipe") -> None:
        """Called first, with the folder and the recipe of the run."""

    def on_start(self, step: int, total: int) -> None:
        """Called when the training starts or continues at ``step`` of ``total``."""

    def on_step(self, step: int) -> None:
        """Called after every step, when ``step`` steps are done."""

    def on_epoch(self, record: dict[str, Any]) -> None:
        """Called after every epoch; ``record`` is its line in the metrics."""

    def on_end(self, error: BaseException | None) -> None:
        """Called last, also if the training was stopped or failed, then with the reason."""
