"""Exporting a network of a finished run, and checking the file against the network."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from dualstudent.atomic import check_free, create_file
from dualstudent.data.samples import Samples
from dualstudent.errors import UserError
from dualstudent.export.formats import FORMATS
from dualstudent.export.model import (
    DeployedModel,
    ModelCard,
    describe_preprocessing,
    fold_state,
    make_plain,
)
from dualstudent.methods import Method
from dualstudent.networks.network import NetworkSettings, list_shapes
from dualstudent.recipes.reading import to_toml
from dualstudent.recipes.schema import DeviceSettings, Recipe
from dualstudent.training.inference import run_inference
from dualstudent.training.model import load_trained
from dualstudent.training.model_file import load_trunk, read_model
from dualstudent.training.run import Run, list_versions
from dualstudent.training.trainer import Trainer
from dualstudent.trunks.samples import ComputedFeatures, KeptFeatures
from dualstudent.trunks.trunk import TrunkSettings

TOLERANCE = 1e-5  # largest difference of a probability between file and trained network
_CHECKED_IMAGES = 64


@dataclass(frozen=True)
class Export:
    """A file that was written and checked.

    Attributes:
        path: of the file.
        card: the model card in it.
        checked: number of images on which it was compared with the trained network.
        difference: largest difference between their probabilities.
    """

    path: Path
    card: ModelCard
    checked: int
    difference: float


def export_run(
    run: Run, to: str, path: Path | str | None = None, student: str | None = None
) -> Export:
    """Write a network of a finished run to one file, and compare it with the trained network.

    Args:
        run: a finished one.
        to: ``"onnx"``, ``"torch-export"`` or ``"safetensors"``.
        path: of the file, which must not exist; default: in the run, named after the network.
        student: name of the network in the run; default: the one that its method exports.

    Raises:
        UserError: if it cannot be exported, or the probabilities differ; no file is kept.
    """
    if to not in FORMATS:
        raise UserError(f"there is no format {to!r}; use one of {', '.join(FORMATS)}")
    file_format = FORMATS[to]
    file_format.check_available()
    used = run.deployed
    trainer = load_trained(used, device=DeviceSettings(accelerator="cpu"))
    _, notes = read_model(used)
    student = _check_network(used, trainer.method, student or notes.exported)
    path = Path(path or run.folder / (student + file_format.suffix))
    check_free(path)  # before the slow part
    network = trainer.method.evaluated[student]
    model = DeployedModel(_build_card(used, run.used, trainer, student, notes.classes))
    model.network.load_state_dict(fold_state(network))
    seen = trainer.data.test if len(trainer.data.test) else trainer.data.train
    if (trunk := load_trunk(used)) is not None:
        cast(nn.Module, model.trunk).load_state_dict(trunk.state_dict())
        seen = ComputedFeatures(cast(KeptFeatures, seen).images, trunk)  # kept ones are rounded
    images, expected = _predict(network, seen)
    with create_file(path) as partial:
        file_format.write(model, partial)
        # Also a single image, as most callers have.
        found = torch.cat([file_format.run(partial, part) for part in (images[:1], images[1:])])
        difference = (found - expected).abs().max().item()
        if not difference <= TOLERANCE:  # also if it is NaN
            raise UserError(
                f"{path}: deleted, as its probabilities differ by {difference:.1e} from those of "
                f"{student} on {len(images)} images; at most {TOLERANCE:.0e} is allowed"
            )
    return Export(path, model.card, len(images), difference)


def _check_network(run: Run, method: Method, name: str) -> str:
    known = list(method.evaluated)
    if name not in known:
        raise UserError(f"{run.folder} has no network {name!r}; use one of {', '.join(known)}")
    return name


def _build_card(
    run: Run, measured: Run, trainer: Trainer, student: str, classes: tuple[str, ...]
) -> ModelCard:
    recipe, result, images = trainer.recipe, run.read_result(), trainer.data.train
    if isinstance(images, KeptFeatures):
        images = images.images
    if len(images.shape) != 3:
        raise UserError(
            f"{run.folder}: trained on feature vectors; only networks for images can be exported"
        )
    channels, _, image_size = images.shape
    error = measured.read_result()["networks"].get(student, {}).get("error")
    return ModelCard(
        classes=classes,
        channels=channels,
        image_size=image_size,
        preprocessing=describe_preprocessing(channels, image_size, trainer.data.test.margin),
        student=student,
        test_error=error if measured.evaluated_part == "test" else None,
        validation_error=error if measured.evaluated_part == "validation" else None,
        trunk=_drop_weights(recipe.trunk),
        network=make_plain(find_architecture(student, trainer.method, recipe)),
        normalization=recipe.normalization,
        recipe=_drop_paths(run.read_recipe()),
        trained_with=result["versions"],
        exported_with=list_versions(),
    )


def find_architecture(name: str, method: Method, recipe: Recipe) -> NetworkSettings:
    """The architecture of an evaluated network: that of the student with the same shapes."""
    settings = recipe.method.networks(recipe.network)
    shapes = list_shapes(method.evaluated[name])
    return next(
        each
        for student, each in zip(method.students, settings, strict=True)
        if list_shapes(student) == shapes
    )


def _drop_weights(settings: TrunkSettings | None) -> TrunkSettings | None:
    return None if settings is None else settings.model_copy(update={"weights": "random"})


def _drop_paths(recipe: Recipe) -> str:
    """The recipe as TOML without the user's folders, as the file may be published."""
    paths = {key: None for key, value in recipe.data if isinstance(value, Path)}
    plain: dict[str, Any] = {"data": recipe.data.model_copy(update=paths)}
    for section in ("trunk", "network"):
        settings = getattr(recipe, section)
        if file := getattr(settings, "weights", None):
            plain[section] = settings.model_copy(update={"weights": Path(file).name})
    return to_toml(recipe.model_copy(update=plain))


def _predict(network: nn.Module, samples: Samples) -> tuple[Tensor, Tensor]:
    """Some images (n, channels, H, W) uint8, and their probabilities by the trained network."""
    indices = torch.linspace(0, len(samples) - 1, min(_CHECKED_IMAGES, len(samples))).long()
    (outputs,) = run_inference({"network": network}, samples, indices, None, "cpu")
    pixels = samples.read_pixels(outputs.indices)
    assert pixels is not None  # only images are exported
    return pixels.contiguous(), outputs.clean["network"].class_logits.softmax(dim=1)
