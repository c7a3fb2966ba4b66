"""Callbacks of a training."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dualstudent.errors import UserError

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


def list_callbacks(given: Callback | Sequence[Callback]) -> list[Callback]:
    """Make a list of one or several callbacks.

    Raises:
        UserError: if something else is among them.

    Example:
        >>> len(list_callbacks(Callback()))
        1
    """
    listed = list(given) if isinstance(given, Sequence) else [given]
    if others := [each for each in listed if not isinstance(each, Callback)]:
        raise UserError(
            "callbacks: needs objects, such as ProgressBar() or log_to('tensorboard'), not "
            f"{others[0]!r}"
        )
    return listed
