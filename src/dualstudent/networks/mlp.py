"""A multilayer perceptron for feature vectors, such as embeddings of another model."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from dualstudent.networks.layers import DecoupledHeads
from dualstudent.networks.network import Network, NetworkSettings


class MLPSettings(NetworkSettings):
    """Settings of the multilayer perceptron."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Annotated[int, Field(gt=0, le=2**16)], ...] = Field(
        (128, 64), max_length=2, strict=False, description="widths of hidden layers; [] for none"
    )
    norm: Literal["batch", "layer"] = Field("batch", description="batch or layer normalization")
    dropout: float = Field(0.3, ge=0, lt=1, description="dropout rate after every hidden layer")
    head_scale: float = Field(
        1.0,
        gt=0,
        le=1,
        description="factor of the initial weights of the heads; if they get features themselves, "
        "small weights fit few labels better",
    )


class MLP(Network):
    """Up to two hidden layers with norm, LeakyReLU 0.1 and dropout; decoupled heads.

    Maps vectors (B, features) to a :class:`~dualstudent.prediction.Prediction`.

    Args:
        features: number of input features.
        classes: C.
        hidden: width of each hidden layer; without any, the heads get the vectors themselves.
        norm: ``"batch"`` or ``"layer"`` normalization.
        dropout: dropout rate after every hidden layer.
        head_scale: factor of the initial weights of the heads.

    Example:
        >>> import torch
        >>> MLP(features=64, hidden=(32,))(torch.rand(2, 64)).features.shape
        torch.Size([2, 32])
    """

    Settings = MLPSettings
    smallest_image = None

    def __init__(
        self,
        features: int,
        classes: int = 10,
        hidden: tuple[int, ...] = (128, 64),
        norm: str = "batch",
        dropout: float = 0.3,
        head_scale: float = 1.0,
    ) -> None:
        normalize = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
        layers: list[nn.Module] = []
        for inputs, outputs in zip((features, *hidden), hidden, strict=False):
            layers += [
                nn.Linear(inputs, outputs),
                normalize(outputs),
                nn.LeakyReLU(0.1, inplace=True),
                nn.Dropout(dropout),
            ]
        super().__init__(
            nn.Sequential(*layers), DecoupledHeads((features, *hidden)[-1], classes, False)
        )
        with torch.no_grad():
            for parameter in self.heads.parameters():
                parameter.mul_(head_scale)

    def features(self, vectors: Tensor) -> Tensor:
        hidden: Tensor = self.trunk(vectors)
        return hidden
