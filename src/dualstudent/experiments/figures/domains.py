"""Fig. 8: images of the two domains, as the networks see them."""

import warnings
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from dualstudent.data.datasets import Images
from dualstudent.data.paths import find_data_folder
from dualstudent.data.prepare import DataSettings
from dualstudent.data.sources.catalog import load
from dualstudent.errors import DataWarning, UserError
from dualstudent.experiments.results import FinishedRuns
from dualstudent.experiments.schema import Experiment
from dualstudent.report.style import PAGE_WIDTH


def draw(_: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """Draw one image of each class of the source and target domain."""
    recipes = (run.read_recipe() for cell in runs for run in runs[cell][:1])
    settings = next((recipe.data for recipe in recipes if recipe.data.target), None)
    if settings is None:
        return {}
    try:
        domains = _load(settings)
    except UserError as error:  # curves and table do not need images
        warnings.warn(f"no picture of the domains: {error}", DataWarning, stacklevel=2)
        return {}
    return {"domains": _draw_grid(domains)}


def find_first_of_each_class(images: Images) -> Tensor:
    """(classes,) indices; a class without an image has none."""
    found = [(images.labels == label).nonzero()[:1, 0] for label in range(len(images.classes))]
    return torch.cat(found)


def _load(settings: DataSettings) -> list[tuple[str, Images]]:
    """The training images of both domains at the size in which they are trained."""
    assert settings.source is not None
    assert settings.target is not None
    folder = find_data_folder(settings.folder)
    names = (settings.source, settings.target)
    loaded = [(name, load(name, "train", folder)) for name in names]
    domains = [(name, images) for name, images in loaded if isinstance(images, Images)]
    size = settings.image_size or domains[0][1].image_size
    return [
        (name, images.select(find_first_of_each_class(images)).resize(size))
        for name, images in domains
    ]


def _draw_grid(domains: Sequence[tuple[str, Images]]) -> Figure:
    columns = max(len(images) for _, images in domains)
    figure = Figure(figsize=(PAGE_WIDTH, 0.76 * len(domains)), layout="constrained")
    grid = figure.subplots(len(domains), columns, squeeze=False)
    for row, (name, images) in zip(grid, domains, strict=True):
        row[0].set_ylabel(name.upper(), rotation=0, ha="right", va="center")
        for axes, pixels in zip(row, images.pixels, strict=False):
            gray = pixels.float().mean(dim=0).numpy()
            axes.imshow(gray, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        for axes in row:
            axes.set(xticks=[], yticks=[])
    names = " and ".join(name.upper() for name, _ in domains)
    size = domains[0][1].pixels.shape[-1]
    figure.set_label(
        f"The domains {names}: the first training image of each class, at the {size} × {size} "
        "pixels in which it is trained."
    )
    return figure
