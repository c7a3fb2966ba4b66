"""Optimizer settings; each student gets its own optimizer."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from dualstudent.errors import UserError
from dualstudent.networks.network import Network
from dualstudent.settings import Settings

Groups = list[dict[str, Any]]
SCALE = "scale"  # key of a parameter group: factor of the scheduled learning rate
_OF_TRUNK = {"trunk_scale": 1, "layer_decay": 1, "trained_blocks": None}  # settings that do nothing


class OptimizerSettings(Settings):
    """The settings that all optimizers share."""

    name: str
    learning_rate: float = Field(gt=0, description="γ₀, the largest learning rate")
    weight_decay: float = Field(1e-4, ge=0)
    trunk_scale: float = Field(
        1.0,
        ge=0,
        description="learning rate of the trunk, as a multiple of that of the heads; 0 freezes it",
    )
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="factor of the trunk's learning rate for every block between it and the heads, "
        "with its own",
    )
    trained_blocks: int | None = Field(
        None, ge=1, description="train only so many blocks of the trunk, the last ones"
    )
    decay_norms_and_biases: bool = Field(
        True, description="whether weight decay applies to norms and biases, too"
    )
    clip_norm: float | None = Field(
        None, gt=0, description="clip the gradient of each student to this norm"
    )

    @abstractmethod
    def build(self, network: nn.Module) -> Optimizer:
        """Build an optimizer for all parameters of ``network``, except frozen blocks.

        Raises:
            UserError: if a setting is for the trunk, and the network has no ``heads``.
        """

    def make_groups(self, network: nn.Module) -> Groups:
        """Group the parameters of a network by learning rate and weight decay."""
        scales = self._find_scales(network)
        found: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameter in network.parameters():
            decayed = self.decay_norms_and_biases or parameter.ndim > 1
            key = scales[id(parameter)], self.weight_decay if decayed else 0.0
            found.setdefault(key, []).append(parameter)
        return [
            {"params": parameters, SCALE: scale, "weight_decay": decay}
            for (scale, decay), parameters in found.items()
            if scale > 0
        ]

    def _find_scales(self, network: nn.Module) -> dict[int, float]:
        """Find the factor of the learning rate of each parameter, by its id.

        1 for the heads; trunk_scale · layer_decayᵈ for the d-th block, counted from the heads.
        """
        for key, neutral in _OF_TRUNK.items():
            value = getattr(self, key)
            if value != neutral and not hasattr(network, "heads"):
                raise UserError(
                    f"optimizer.{key} = {value:g}: {type(network).__name__} has no heads, so it "
                    "has no trunk either; leave it out"
                )
        scales = {id(p): 1.0 for p in getattr(network, "heads", network).parameters()}
        blocks = network.blocks if isinstance(network, Network) else [network]
        for distance, block in enumerate(reversed(blocks), start=1):
            frozen = self.trained_blocks is not None and distance > self.trained_blocks
            scale = 0.0 if frozen else self.trunk_scale * self.layer_decay**distance
            for parameter in block.parameters():
                scales.setdefault(id(parameter), scale)
        return scales


class SGDSettings(OptimizerSettings):
    """Stochastic gradient descent with Nesterov momentum, as in the paper."""

    name: Literal["sgd"] = "sgd"
    momentum: float = Field(0.9, gt=0, lt=1)

    def build(self, network: nn.Module) -> Optimizer:
        return SGD(
            self.make_groups(network), lr=self.learning_rate, momentum=self.momentum, nesterov=True
        )


class AdamWSettings(OptimizerSettings):
    """Adam with decoupled weight decay (Loshchilov & Hutter, ICLR 2019)."""

    name: Literal["adamw"] = "adamw"
    weight_decay: float = Field(0.01, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)

    def build(self, network: nn.Module) -> Optimizer:
        betas = (self.beta1, self.beta2)
        return AdamW(self.make_groups(network), lr=self.learning_rate, betas=betas)


if TYPE_CHECKING:
    AnyOptimizer = OptimizerSettings
else:  # the key ``name`` selects the class
    AnyOptimizer = Annotated[SGDSettings | AdamWSettings, Field(discriminator="name")]


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of all groups, each times its scale."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(SCALE, 1.0)


def clip_gradient(optimizer: Optimizer, norm: float) -> None:
    """Scale the gradient of all parameters down to ``norm``, if it is longer."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    nn.utils.clip_grad_norm_(parameters, norm)
