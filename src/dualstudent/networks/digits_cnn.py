"""The small CNN of the digit experiments (Appendix B, Table "The small CNN")."""

from torch import Tensor, nn

from dualstudent.networks.convolution import convolution
from dualstudent.networks.heads import DecoupledHeads
from dualstudent.prediction import Prediction


class DigitsCNN(nn.Module):
    """Three convolutions of 16, 32 and 32 channels, a mean over the map, decoupled heads.

    14,968 parameters for grey images and 10 classes; any image of 4 pixels or more a side.
    The paper pools 6×6 of a 7×7 map; this pools the whole map, so that any size works.

    Args:
        channels: of the images.
        classes: C.
        dropout: after the second max pooling.
        weight_norm: on every convolution and both heads.

    Example:
        >>> import torch
        >>> DigitsCNN()(torch.rand(2, 1, 28, 28)).class_logits.shape
        torch.Size([2, 10])
    """

    smallest_image = 4

    def __init__(
        self,
        channels: int = 1,
        classes: int = 10,
        dropout: float = 0.5,
        weight_norm: bool = True,
    ) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            convolution(channels, 16, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            convolution(16, 32, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            convolution(32, 32, weight_norm=weight_norm),
        )
        self.heads = DecoupledHeads(32, classes, weight_norm)

    def forward(self, images: Tensor) -> Prediction:
        prediction: Prediction = self.heads(self.trunk(images).mean(dim=(2, 3)))
        return prediction
