"""Fine-tuning: the last blocks, frozen statistics, and a start from a run on features."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dualstudent import Recipe, Run, Trainer, UserError, resume, train
from dualstudent.data.images.decoding import decode, resize
from dualstudent.doctor import examine
from dualstudent.networks import EfficientNetLite0
from dualstudent.recipes.own_images import use_own_images
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_tensors
from dualstudent.training.fine_tuning import start_from_run
from dualstudent.training.predictor import Predictor
from dualstudent.worth import make_opponent
from tests.support.digit_files import write_digits
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs, change_recipe
from tests.support.trunk_weights import save_weights

BLOCKS = 18  # of EfficientNet-Lite0: the first convolution, 16 blocks, the last convolution
TRUNK = ("trunk.name=efficientnet-lite0", "trunk.weights=mine.pt", "trunk.image_size=32")
HEADS = (*TRUNK, "trunk.weak_views=1", "network.name=mlp", "network.hidden=[]")
TUNED = ("network.name=efficientnet-lite0", "network.weights=runs/head")
METHODS = {
    "dual-student+mean-teacher": ["ema.decay=0.9"],
    "pi+fastswa": ["method.average_from=1"],
    "vat": ["method.epsilon=1"],
}
pytestmark = pytest.mark.usefixtures("at_place")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


def make_recipe(*changes: str) -> Recipe:
    """Gray digits of 32 pixels: 2 epochs of 4 steps."""
    where = {"path": "digits", "image_size": 32, "channels": 1, "unlabeled": "unlabeled"}
    small = ("batch.size=8", "batch.labeled=3", "schedule.epochs=2", "schedule.rampup_epochs=1")
    return use_own_images("digits", where, [*small, *changes])


@pytest.fixture
def head(place: Path) -> Run:
    """A run of two students on features, made once."""
    folder = place / "runs" / "head"
    if not folder.exists():
        write_digits(place / "digits", labeled=2, unlabeled=20, test=10)
        save_weights(place / "mine.pt")
        train(make_recipe(*HEADS, "method.name=dual-student"), folder)
    return Run.open(folder)


def make_tuned(
    run: Run, number: int = 0, classes: Sequence[str] | None = None
) -> EfficientNetLite0:
    network = EfficientNetLite0(channels=1)
    known = Predictor(run).classes if classes is None else classes
    start_from_run(network, number, run, known)
    return network.eval()


def read_images() -> tuple[list[Path], Tensor]:
    """The test images, and their pixels as the trunk expects them."""
    paths = sorted(Path("digits/test").rglob("*.png"))
    pixels = torch.stack([torch.from_numpy(resize(decode(path, 1), 32)) for path in paths])
    return paths, (pixels.float() - 127) / 128


def test_the_first_predictions_are_those_of_the_run(head: Run) -> None:
    paths, images = read_images()
    (expected,) = Predictor(head).predict(paths)
    assert expected.probabilities.std(dim=0).max() > 1e-3  # it tells images apart
    trainer = Trainer(make_recipe(*TUNED, "method.name=mean-teacher"))
    for network in trainer.method.evaluated.values():  # student and teacher
        with torch.no_grad():
            found = network.eval()(images).class_logits.softmax(dim=1)
        torch.testing.assert_close(found, expected.probabilities, atol=1e-4, rtol=0)


def test_each_student_gets_both_heads_of_its_own(head: Run) -> None:
    tensors, _ = read_tensors(head.model)
    mean, std = tensors["preprocessing.mean"], tensors["preprocessing.std"]
    for number in (0, 1):
        network = make_tuned(head, number)
        with torch.no_grad():
            found = network(read_images()[1])
        vectors = (found.features.double() - mean) / std
        for name, logits in (
            ("classify", found.class_logits),
            ("follow", found.consistency_logits),
        ):
            weight = tensors[f"student{number + 1}.heads.{name}.weight"].double()
            expected = vectors @ weight.T + tensors[f"student{number + 1}.heads.{name}.bias"]
            torch.testing.assert_close(logits.double(), expected, atol=1e-4, rtol=1e-4)


def test_a_student_that_the_run_has_not_keeps_its_own_consistency_head(head: Run) -> None:
    first, third = (make_tuned(head, number).heads.state_dict() for number in (0, 2))
    assert torch.equal(third["classify.weight"], first["classify.weight"])
    assert not torch.equal(third["follow.weight"], first["follow.weight"])


def test_runs_that_do_not_fit_are_refused(head: Run, place: Path) -> None:
    with pytest.raises(UserError, match=r"runs/head was trained for other classes"):
        make_tuned(head, classes=["cat", "dog"])
    with pytest.raises(UserError, match=r"other weights of efficientnet-lite0, or on images with"):
        start_from_run(EfficientNetLite0(channels=3), 0, head, Predictor(head).classes)
    text = head.recipe.read_text()
    for old, new, message in (
        ("hidden = []", "hidden = [8]", "have hidden layers"),
        ('"efficientnet-lite0"', '"efficientnet-lite1"', "has the trunk efficientnet-lite1"),
    ):
        change_recipe(head, text.replace(old, new))
        with pytest.raises(UserError, match=message):
            start_from_run(EfficientNetLite0(channels=1), 0, head, ())
    change_recipe(head, text)
    for folder, message in ((place / "digits", "is not a run"), (place / "x", "cannot be read")):
        with pytest.raises(UserError, match=message):
            Trainer(make_recipe(TUNED[0], f"network.weights={folder}"))


def test_a_run_that_has_not_finished_or_has_no_trunk_is_refused(head: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(make_recipe(*HEADS), tmp_path / "part", RaisesSignalAt(1))
    with pytest.raises(UserError, match="has not finished"):
        Trainer(make_recipe(TUNED[0], f"network.weights={tmp_path / 'part'}"))
    pixels = train(make_recipe("network.name=quick-cnn", "schedule.epochs=1"), tmp_path / "pixels")
    with pytest.raises(UserError, match="has no trunk; name a run on features of"):
        make_tuned(pixels)


def test_the_opponent_starts_from_labels_alone(head: Run) -> None:
    recipe = make_recipe(*TUNED, "method.name=fixmatch", "transforms.strong.cutout=0.5")
    trainer = Trainer(recipe)
    assert make_opponent(recipe, trainer.data) is None
    alone = train(make_recipe(*HEADS, "method.name=supervised"), head.labels_only.folder)
    opponent = make_opponent(recipe, trainer.data)
    assert opponent is not None
    assert opponent.network.model_dump()["weights"] == str(alone.folder.absolute())
    shutil.rmtree(alone.folder)


def test_frozen_blocks_receive_no_gradient_and_keep_their_statistics() -> None:
    network = EfficientNetLite0(weights="random")
    network.freeze_trunk(trained_blocks=3)
    assert len(network.blocks) == BLOCKS
    inputs: list[Tensor] = []
    network.blocks[-3].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network.train()(torch.rand(4, 3, 32, 32)).class_logits.square().sum().backward()
    assert not inputs[0].requires_grad  # so that the backward pass stops there
    for number, block in enumerate(network.blocks):
        trained = number >= BLOCKS - 3
        for parameter in block.parameters():
            assert (parameter.grad is not None and bool(parameter.grad.any())) == trained
    trained_names = ("trunk.head.", "trunk.blocks.14.", "trunk.blocks.15.")
    for name, buffer in network.named_buffers():
        assert torch.equal(buffer, before[name]) != name.startswith(trained_names), name


def test_a_trunk_does_not_train_more_blocks_than_it_has() -> None:
    with pytest.raises(UserError, match=r"trained_blocks = 19: .*EfficientNetLite0 has 18$"):
        EfficientNetLite0().freeze_trunk(19)


def list_statistics(network: nn.Module) -> dict[str, Tensor]:
    found = network.state_dict().items()
    return {k: v.clone() for k, v in found if k.endswith(("_mean", "_var", "_tracked"))}


@pytest.mark.parametrize("method", METHODS)
def test_frozen_batch_norms_keep_statistics_and_learn_scales(method: str) -> None:
    changes = ("network.batch_norm=frozen", f"method.name={method}", *METHODS[method])
    trainer = Trainer(small_recipe(*changes))
    start = {n: list_statistics(each) for n, each in trainer.method.evaluated.items()}
    scales = {n: p.clone() for n, p in trainer.method.students[0].named_parameters()}
    while not trainer.done:
        trainer.advance()
    for name, network in trainer.method.evaluated.items():
        for key, value in list_statistics(network).items():
            assert torch.equal(value, start[name][key])
    for key, parameter in trainer.method.students[0].get_submodule("trunk").named_parameters():
        assert not torch.equal(parameter, scales[f"trunk.{key}"]), key
    assert examine(small_recipe(*changes), steps=3).findings == []


def test_a_fine_tuned_run_continues_bit_for_bit(head: Run, tmp_path: Path) -> None:
    recipe = make_recipe(
        *TUNED, "optimizer.trained_blocks=2", "method.name=pi+fastswa", "method.average_from=1"
    )
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", RaisesSignalAt(5))
    assert_equal_runs(resume(tmp_path / "run"), whole)
    start, (trained, _) = make_tuned(head).state_dict(), read_tensors(whole.model)
    moved = ("heads.", "trunk.head.", "trunk.blocks.15.")
    for name, tensor in start.items():
        for network in ("student", "average"):  # FastSWA measures only what is trained
            assert torch.equal(trained[f"{network}.{name}"], tensor) != name.startswith(moved), name
