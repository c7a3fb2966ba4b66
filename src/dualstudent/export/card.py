"""The model card: what somebody who has only the file must know of it."""

import json
from typing import Literal

from dualstudent.data.transforms.normalization import Normalization
from dualstudent.networks.build import AnyNetworkSettings
from dualstudent.settings import Settings


class ModelCard(Settings):
    """Goes into every exported file.

    Attributes:
        format: of this card.
        classes: their names, in the order of the probabilities.
        channels: of the images, 1 for gray and 3 for red, green and blue.
        image_size: pixels a side.
        preprocessing: what the caller still has to do, in words.
        student: the name that the network has in its run.
        test_error: of this network after the last epoch, in percent; None without a test.
        validation_error: the same on a validation part, where there was no test.
        network: its architecture, without weight normalization, which is folded in.
        normalization: of the pixel values; the model does it.
        recipe: of the run, as TOML, without the places of files.
        trained_with: versions of what trained it.
        exported_with: versions of what wrote the file.
    """

    format: Literal[1] = 1
    classes: tuple[str, ...]
    channels: int
    image_size: int
    preprocessing: str
    student: str
    test_error: float | None
    validation_error: float | None = None
    network: AnyNetworkSettings
    normalization: Normalization
    recipe: str
    trained_with: dict[str, str]
    exported_with: dict[str, str]

    def as_texts(self) -> dict[str, str]:
        """Key → text, for files that hold nothing else: text as it is, the rest as JSON."""
        fields = self.model_dump(mode="json")
        return {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in fields.items()
        }


def preprocessing_in_words(channels: int, image_size: int) -> str:
    """What has to happen to an image before the model sees it."""
    colors = {1: "gray", 3: "red, green, blue"}.get(channels, f"{channels} channels")
    return (
        f"uint8 pixels (N, {channels}, {image_size}, {image_size}), {colors}, 0 the darkest and "
        f"255 the brightest; of an image of another size the square in the middle, brought to "
        f"{image_size} × {image_size} by bicubic interpolation, antialiased where that makes it "
        "smaller; not normalized, the model does that"
    )
