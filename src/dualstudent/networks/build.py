"""Networks by name, each student with an initial state of its own."""

from typing import TYPE_CHECKING, Annotated, Union, cast

import torch
from pydantic import Field
from torch import nn

from dualstudent.errors import UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks.cnn13 import CNN13
from dualstudent.networks.digits_cnn import DigitsCNN
from dualstudent.networks.mlp import MLP
from dualstudent.networks.network import NetworkSettings
from dualstudent.networks.quick_cnn import QuickCNN
from dualstudent.networks.resnext import ResNeXt50
from dualstudent.networks.shake_shake import ShakeShake26

NETWORKS: tuple[
    type[CNN13]
    | type[DigitsCNN]
    | type[MLP]
    | type[QuickCNN]
    | type[ResNeXt50]
    | type[ShakeShake26],
    ...,
] = (
    CNN13,
    DigitsCNN,
    MLP,
    QuickCNN,
    ResNeXt50,
    ShakeShake26,
)

if TYPE_CHECKING:
    AnyNetworkSettings = NetworkSettings
else:  # told apart by their name
    AnyNetworkSettings = Annotated[
        Union[tuple(network.Settings for network in NETWORKS)],  # noqa: UP007
        Field(discriminator="name"),
    ]


def build_network(
    settings: NetworkSettings,
    channels: int,
    classes: int,
    image_size: int | None,
    seed: int,
    student: int,
) -> nn.Module:
    """A network whose initial state is a function of (seed, student).

    Convolutions on a CPU are up to 1.4 times faster with the channels last in memory.

    Args:
        settings: which network.
        channels: of the images, or the number of features.
        classes: C.
        image_size: pixels of the shorter side; None if the data are feature vectors.
        seed: of the run.
        student: which one, counted from 0.
    """
    (network,) = (network for network in NETWORKS if network.Settings is type(settings))
    with seeded_rng(seed, "initial state", student):
        built = network(channels, classes, **settings.model_dump(exclude={"name"}))
    _check_suits(settings.name, built.smallest_image, image_size)
    return cast(nn.Module, built.to(memory_format=torch.channels_last))  # type: ignore[call-overload]


def _check_suits(name: str, smallest: int | None, image_size: int | None) -> None:
    if smallest is None or image_size is None:
        if smallest != image_size:
            wants, has = "images", "feature vectors"
            if smallest is None:
                wants, has = has, wants
            raise UserError(f"the network {name!r} is for {wants}, the data are {has}")
    elif image_size < smallest:
        raise UserError(
            f"the network {name!r} needs images of at least {smallest} "
            f"pixels a side, the data have {image_size}; set data.image_size"
        )
