"""Weights that others have trained: published ones, and those of a file."""

import hashlib
import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from dualstudent.errors import UserError, escape_line

_SHOWN = 3  # names of tensors in a message


class Published(NamedTuple):
    """Weights in a Python package.

    Attributes:
        package: name of the package, as pip knows it.
        file: path of the file inside of the package.
        sha256: checksum of the file.
    """

    package: str
    file: str
    sha256: str

    def find(self) -> Path | None:
        """Find the file; None if the package is not installed. Runs no code of the package."""
        found = find_spec(self.package.replace("-", "_"))
        if found is None or found.origin is None:
            return None
        return Path(found.origin).parent / self.file


def read_published(published: Published) -> dict[str, Tensor]:
    """Read published weights after their checksum was verified; runs no code of the package.

    Raises:
        UserError: if the package is not installed, or the file was changed.
    """
    path = published.find()
    if path is None:
        raise UserError(
            f"the weights are in the package {published.package}, which is not installed; "
            "install the extra 'pretrained' of dualstudent"
        )
    return read_weights(path, published.sha256)


def read_weights(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Read named tensors from a .safetensors file, or from a state dict that PyTorch saved.

    Neither can run code.

    Args:
        path: of the file.
        sha256: checksum that the file must have; default: any.

    Raises:
        UserError: if the file cannot be read, or holds something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a file of weights") from (
            error
        )
    if sha256 not in (None, hashlib.sha256(content).hexdigest()):
        raise UserError(f"{path}: is not the published file (SHA-256 {sha256}); install it again")
    try:
        tensors = _parse(content, path.suffix == ".safetensors")
    except Exception:  # of any kind, depending on what the file is and where it is damaged
        tensors = None
    if not isinstance(tensors, Mapping) or not all(isinstance(v, Tensor) for v in tensors.values()):
        raise UserError(
            f"{path}: is damaged, or no file of weights; give a .safetensors file, or a state dict "
            "saved by torch.save"
        )
    return {str(name): tensor for name, tensor in tensors.items()}


def _parse(content: bytes, is_safetensors: bool) -> Any:
    if is_safetensors:
        return load_safetensors(content)
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def load_checked(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load tensors into a module after their names and shapes were checked.

    Args:
        module: has exactly these tensors.
        tensors: name → tensor.
        where: the file, for messages.

    Raises:
        UserError: if they do not fit; the module is unchanged then.
    """
    own = module.state_dict()
    problems = {
        "lacks": own.keys() - tensors.keys(),
        "has no place for": tensors.keys() - own.keys(),
        "has another shape of": {
            name for name in own.keys() & tensors.keys() if own[name].shape != tensors[name].shape
        },
    }
    for problem, names in problems.items():
        if names:
            shown = ", ".join(escape_line(name) for name in sorted(names)[:_SHOWN])
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise UserError(
                f"{where}: does not fit this network: it {problem} {shown}{more}; give weights of "
                "the same architecture"
            )
    module.load_state_dict(dict(tensors))
