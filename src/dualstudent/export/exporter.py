"""From a finished run to a file that is known to say the same."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dualstudent.atomic import check_free, create_file
from dualstudent.data.samples import Samples
from dualstudent.errors import UserError
from dualstudent.export.card import ModelCard, preprocessing_in_words
from dualstudent.export.deployed import DeployedModel, drop_weight_norm, fold_state
from dualstudent.export.file_format import FileFormat
from dualstudent.export.onnx_file import OnnxFile
from dualstudent.export.safetensors_file import SafetensorsFile
from dualstudent.export.torch_export_file import TorchExportFile
from dualstudent.methods import Method
from dualstudent.networks.network import NetworkSettings
from dualstudent.recipes.reading import to_toml
from dualstudent.recipes.schema import DeviceSettings, Recipe
from dualstudent.training.inference import run_inference
from dualstudent.training.model import load_trained, read_model
from dualstudent.training.run import Run, versions
from dualstudent.training.trainer import Trainer

FORMATS: dict[str, FileFormat] = {
    "onnx": OnnxFile(),
    "torch-export": TorchExportFile(),
    "safetensors": SafetensorsFile(),
}
TOLERANCE = 1e-5  # of a probability, between the file and the network that was trained
_CHECKED = 64  # images, in one batch


@dataclass(frozen=True)
class Export:
    """A file that was written and checked.

    Attributes:
        path: of the file.
        card: what is written in it.
        checked: how many test images it was compared on.
        difference: the largest one between its probabilities and those of the trained network.
    """

    path: Path
    card: ModelCard
    checked: int
    difference: float


def export_run(
    run: Run, to: str, path: Path | str | None = None, student: str | None = None
) -> Export:
    """Write a network of a finished run into one file, and compare it with what was trained.

    Args:
        run: that has finished.
        to: ``"onnx"``, ``"torch-export"`` or ``"safetensors"``.
        path: of the file, which must not exist; default: in the run, named after the network.
        student: name of the network in the run; default: the one that its method exports.

    Raises:
        UserError: if that cannot be done, or the file would say something else; then there is
            no file.
    """
    if to not in FORMATS:
        raise UserError(f"there is no format {to!r}; use one of {', '.join(FORMATS)}")
    file_format = FORMATS[to]
    file_format.check_available()
    trainer = load_trained(run, device=DeviceSettings(accelerator="cpu"))
    _, notes = read_model(run)
    student = _chosen(run, trainer.method, student or notes.exported)
    path = Path(path or run.folder / (student + file_format.suffix))
    check_free(path)  # before the work
    network = trainer.method.evaluated[student]
    model = DeployedModel(_card(run, trainer, student, notes.classes))
    model.network.load_state_dict(fold_state(network))
    seen = trainer.data.test if len(trainer.data.test) else trainer.data.train
    images, expected = _predict(network, seen)
    with create_file(path) as partial:
        file_format.write(model, partial)
        # A single image too: it is what most callers have.
        found = torch.cat([file_format.run(partial, part) for part in (images[:1], images[1:])])
        difference = (found - expected).abs().max().item()
        if not difference <= TOLERANCE:  # also if it is not a number
            raise UserError(
                f"{path}: not kept, its probabilities differ by {difference:.1e} from those of "
                f"{student} on {len(images)} images; {TOLERANCE:.0e} is allowed"
            )
    return Export(path, model.card, len(images), difference)


def _chosen(run: Run, method: Method, name: str) -> str:
    known = list(method.evaluated)
    if name not in known:
        raise UserError(f"{run.folder} has no network {name!r}; use one of {', '.join(known)}")
    return name


def _card(run: Run, trainer: Trainer, student: str, classes: tuple[str, ...]) -> ModelCard:
    recipe, result = trainer.recipe, run.read_result()
    if len(trainer.data.train.shape) != 3:
        raise UserError(f"{run.folder} learned from feature vectors; only images can be exported")
    channels, _, image_size = trainer.data.train.shape
    error = result["networks"].get(student, {}).get("error")
    return ModelCard(
        classes=classes,
        channels=channels,
        image_size=image_size,
        preprocessing=preprocessing_in_words(channels, image_size),
        student=student,
        test_error=error if run.evaluated_part == "test" else None,
        validation_error=error if run.evaluated_part == "validation" else None,
        network=drop_weight_norm(architecture_of(student, trainer.method, recipe)),
        normalization=recipe.normalization,
        recipe=_without_places(run.read_recipe()),
        trained_with=result["versions"],
        exported_with=versions(),
    )


def architecture_of(name: str, method: Method, recipe: Recipe) -> NetworkSettings:
    """Of any evaluated network: teachers and averages have that of the student they follow."""
    settings = recipe.method.networks(recipe.network)
    shapes = _shapes(method.evaluated[name])
    return next(
        each
        for student, each in zip(method.students, settings, strict=True)
        if _shapes(student) == shapes
    )


def _shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in network.state_dict().items()}


def _without_places(recipe: Recipe) -> str:
    """The file may go to strangers, whom the user's folders do not concern."""
    places = {key: None for key, value in recipe.data if isinstance(value, Path)}
    return to_toml(recipe.model_copy(update={"data": recipe.data.model_copy(update=places)}))


def _predict(network: nn.Module, samples: Samples) -> tuple[Tensor, Tensor]:
    """Some images as bytes, and the probabilities that the trained network gives them."""
    indices = torch.linspace(0, len(samples) - 1, min(_CHECKED, len(samples))).long()
    (outputs,) = run_inference({"network": network}, samples, indices, None, "cpu")
    pixels = samples.pictures(outputs.indices)
    assert pixels is not None  # only images are exported
    return pixels.contiguous(), outputs.clean["network"].class_logits.softmax(dim=1)
