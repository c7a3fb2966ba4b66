"""What every kind of exported file is: written, and run again to be compared."""

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.export.deployed import DeployedModel


class FileFormat(ABC):
    """A kind of file that holds a deployed model and its card.

    Attributes:
        suffix: how its files end.
        packages: of the extra ``export`` that it needs: most runs are never exported.
    """

    suffix: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()

    def check_available(self) -> None:
        """Refuse with a ``UserError`` if a package is missing."""
        try:
            for package in self.packages:
                importlib.import_module(package)
        except ImportError as error:
            raise UserError(
                f"writing {self.suffix} files needs {', '.join(self.packages)}: "
                "pip install 'dualstudent[export]', or use another --to"
            ) from error

    @abstractmethod
    def write(self, model: DeployedModel, path: Path) -> None:
        """Write the model into the one file ``path``.

        Raises:
            UserError: if the format cannot hold it.
        """

    @abstractmethod
    def run(self, path: Path, images: Tensor) -> Tensor:
        """(N, C), the probabilities of a written file, computed as its user would."""
