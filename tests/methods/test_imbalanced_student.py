from pathlib import Path

import pytest
import torch
from torch import nn

from dualstudent import Recipe, UserError, load_recipe, resume, train
from dualstudent.methods import (
    DualStudent,
    DualStudentSettings,
    ImbalancedStudent,
    ImbalancedStudentSettings,
)
from dualstudent.networks import DigitsCNN, ShakeShake26
from dualstudent.networks.build import build_network
from dualstudent.networks.cnn13 import CNN13Settings
from dualstudent.networks.digits_cnn import DigitsCNNSettings
from dualstudent.recipes.reading import to_toml
from dualstudent.signals import Interrupted
from dualstudent.training.trainer import Trainer
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from tests.support.students import small_batch

WIDER = DigitsCNNSettings(width=2, dropout=0.0)


def test_the_first_network_is_the_recipes_and_the_second_the_strong_one() -> None:
    settings, weak = ImbalancedStudentSettings(strong_network=WIDER), CNN13Settings()
    assert settings.networks(weak) == [weak, WIDER]


@pytest.mark.parametrize("exported", ["weak", "strong"])
def test_the_headline_is_the_weak_student_whichever_is_exported(exported: str) -> None:
    table = {"strong_network": {"name": "digits-cnn"}, "exported": exported}
    students = [DigitsCNN(), DigitsCNN(width=2)]
    method = ImbalancedStudent(students, ImbalancedStudentSettings.model_validate(table))
    assert list(method.evaluated) == ["weak", "strong"]
    assert list(method.evaluated.values()) == students
    assert method.headline == ["weak"]
    assert method.exported == exported


def test_the_losses_are_those_of_dual_student() -> None:
    weak = DigitsCNNSettings(dropout=0.0)
    students: list[nn.Module] = [
        build_network(network, 1, 3, image_size=4, seed=0, student=number)
        for number, network in enumerate((weak, WIDER))
    ]
    settings = ImbalancedStudentSettings(strong_network=WIDER, confidence_threshold=0.0)
    dual = DualStudent(students, DualStudentSettings(confidence_threshold=0.0))
    losses = ImbalancedStudent(students, settings).losses(small_batch(), ramp=1.0)
    for loss, expected in zip(losses, dual.losses(small_batch(), ramp=1.0), strict=True):
        actual = {name: term.item() for name, term in loss.terms.items()}
        assert actual == {name: term.item() for name, term in expected.terms.items()}
        assert actual["stabilization"] > 0


def recipe_of(folder: Path, method: str) -> Recipe:
    path = folder / "imbalanced.toml"
    path.write_text(
        f"""
        extends = "digits"
        [data]
        source = "digits-8x8"
        image_size = 8
        [transforms.weak]
        translate = 1
        [batch]
        size = 32
        labeled = 8
        [method]
        name = "imbalanced-student"
        {method}
        """
    )
    return load_recipe(path)


def convolutions(network: nn.Module) -> list[int]:
    return [layer.out_channels for layer in network.modules() if isinstance(layer, nn.Conv2d)]


def test_a_recipe_trains_both_networks(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, '[method.strong_network]\nname = "digits-cnn"\nwidth = 2')
    trainer = Trainer(recipe)
    weak, strong = trainer.method.students
    assert (convolutions(weak), convolutions(strong)) == ([16, 32, 32], [32, 64, 64])
    before = [parameter.clone() for parameter in trainer.method.parameters()]
    for step in range(2):
        losses = trainer.take_step(step)
        assert all(loss.total.isfinite() for loss in losses)
    for old, new in zip(before, trainer.method.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_shake_shake_can_be_the_strong_student(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, '[method.strong_network]\nname = "shake-shake"\nwidth = 2')
    trainer = Trainer(recipe)
    strong = trainer.method.students[1]
    assert isinstance(strong, ShakeShake26)
    before = [parameter.clone() for parameter in strong.heads.parameters()]
    trainer.take_step(0)
    for old, new in zip(before, strong.heads.parameters(), strict=True):
        assert not torch.equal(old, new)


def test_a_recipe_survives_being_written(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, '[method.strong_network]\nname = "shake-shake"\nwidth = 35')
    (tmp_path / "copy.toml").write_text(to_toml(recipe))
    assert load_recipe(tmp_path / "copy.toml") == recipe


def test_a_stopped_run_with_shake_shake_continues_bit_for_bit(tmp_path: Path) -> None:
    recipe = small_recipe(
        "method.name=imbalanced-student",
        "method.strong_network.name=shake-shake",
        "method.strong_network.width=2",
        "batch.size=128",
        "schedule.epochs=1",
    )
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "stopped", RaisesSignalAt(5))
    assert_equal_runs(resume(tmp_path / "stopped"), whole)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("", r"method\.strong_network is missing"),
        ("strong_network = 3", r"method\.strong_network = 3: "),
        ("[method.strong_network]", r"method\.strong_network\.name is missing"),
        (
            '[method.strong_network]\nname = "nothing"',
            r"method\.strong_network\.name = 'nothing': .*'shake-shake'",
        ),
        (
            '[method.strong_network]\nname = "digits-cnn"\nwidht = 2',
            r"method\.strong_network\.widht = 2: unknown key; "
            r"did you mean 'method\.strong_network\.width'",
        ),
        (
            '[method.strong_network]\nname = "shake-shake"\nwidth = 0',
            r"method\.strong_network\.width = 0: .*greater than 0",
        ),
        (
            'exported = "both"\n[method.strong_network]\nname = "digits-cnn"',
            r"method\.exported = 'both': .*'weak' or 'strong'",
        ),
    ],
)
def test_what_is_wrong_with_the_strong_network_is_said_in_one_line(
    method: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message + ".*$") as error:
        recipe_of(tmp_path, method)
    text = str(error.value)
    assert "\n" not in text
    assert ";" not in text.replace("unknown key;", "")  # one problem, said once


def test_a_strong_network_that_needs_larger_images_is_refused(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, '[method.strong_network]\nname = "cnn13"')
    with pytest.raises(UserError, match=r"'cnn13' .* 12 pixels .*data\.image_size"):
        Trainer(recipe)
