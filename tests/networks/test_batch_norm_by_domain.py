"""Batch norm by domain: values by hand, and runs of every method with it."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from dualstudent import Run, UserError, export_run, resume, train
from dualstudent.adversarial import disable_dropout, freeze_statistics
from dualstudent.batch import Views, find_targets, mark_domains
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.prepare import DataSettings, prepare
from dualstudent.doctor import examine
from dualstudent.methods import METHODS
from dualstudent.mixing import blend
from dualstudent.networks.build import build_network
from dualstudent.networks.digits_cnn import DigitsCNNSettings
from dualstudent.networks.domains import BatchNormByDomain, normalize_by_domain
from dualstudent.networks.mlp import MLPSettings
from dualstudent.prediction import Prediction
from dualstudent.recipes.schema import Recipe
from dualstudent.signals import Interrupted
from dualstudent.training.checkpoint import read_tensors
from dualstudent.training.trainer import Trainer

SOURCE, TARGET = 0, 1
BY_DOMAIN = (
    "data.target=mnist-5k",
    "data.labels=all",
    "network.batch_norm=by-domain",
    "batch.size=512",
    "batch.labeled=128",
    "device.accelerator=cpu",
)
ADAPTING = [  # all methods that see the target
    str(each.Settings.model_fields["name"].default) for each in METHODS if each.views.unlabeled
]
NEEDED = {
    "imbalanced-student": ['method.strong_network={name="quick-cnn", batch_norm="by-domain"}'],
    "vat": ["method.epsilon=1.0"],
    "pi+fastswa": ["method.average_from=1"],
    "mean-teacher+fastswa": ["method.average_from=1"],
}


def recipe_by_domain(*changes: str) -> Recipe:
    """8 × 8 digits as the source, MNIST digits as the target: 2 epochs of 10 steps."""
    return small_recipe(*BY_DOMAIN, *changes)


class Rows(nn.Module):
    """Batch norm alone, in the place of a network of vectors."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        nn.init.uniform_(self.norm.weight)
        nn.init.uniform_(self.norm.bias)

    def forward(self, rows: Tensor) -> Prediction:
        out = self.norm(rows)
        return Prediction(out, out, out)


def rows_by_domain(features: int = 3) -> tuple[Rows, BatchNormByDomain]:
    network = Rows(features)
    normalize_by_domain(network, features)
    assert isinstance(network.norm, BatchNormByDomain)
    return network, network.norm


def standardize(x: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    return np.asarray((x - mean) / np.sqrt(var + 1e-5))


def test_each_domain_is_normalized_by_its_own_rows_in_any_order() -> None:
    network, norm = rows_by_domain()
    domains = torch.tensor([SOURCE, TARGET, TARGET, SOURCE, TARGET, SOURCE, TARGET])
    rows = torch.randn(7, 3) + 5 * domains[:, None]
    found = network(mark_domains(rows, domains)).class_logits.detach().numpy()
    weight, bias = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    for domain in (SOURCE, TARGET):
        part, x = domains.numpy() == domain, rows.numpy()[domains.numpy() == domain]
        expected = standardize(x, x.mean(axis=0), x.var(axis=0)) * weight + bias
        np.testing.assert_allclose(found[part], expected, rtol=1e-4, atol=1e-5)
    x = rows.numpy()[domains.numpy() == TARGET]
    np.testing.assert_allclose(norm.running_mean, 0.1 * x.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(norm.running_var, 0.9 + 0.1 * x.var(axis=0, ddof=1), rtol=1e-5)
    x = rows.numpy()[domains.numpy() == SOURCE]
    np.testing.assert_allclose(norm.source_mean, 0.1 * x.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(norm.source_var, 0.9 + 0.1 * x.var(axis=0, ddof=1), rtol=1e-5)


def test_gradients_are_those_of_two_separate_passes_through_plain_batch_norm() -> None:
    network, norm = rows_by_domain()
    plain = nn.BatchNorm1d(3)
    plain.load_state_dict(norm.state_dict(), strict=False)
    domains = torch.tensor([TARGET, SOURCE, TARGET, SOURCE, SOURCE])
    rows, factors = torch.randn(5, 3), torch.randn(5, 3)
    together, apart = (rows.clone().requires_grad_() for _ in range(2))
    (network(mark_domains(together, domains)).features * factors).sum().backward()
    for domain in (SOURCE, TARGET):
        part = domains == domain
        (plain(apart[part]) * factors[part]).sum().backward()
    for mine, expected in ((together, apart), (norm.weight, plain.weight), (norm.bias, plain.bias)):
        torch.testing.assert_close(mine.grad, expected.grad)


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("rare", [SOURCE, TARGET])
def test_one_row_among_others_of_the_other_domain_is_normalized_with_them(
    rare: int, count: int
) -> None:
    network, norm = rows_by_domain()
    domains = torch.full((count,), 1 - rare)
    domains[3] = rare
    rows = torch.randn(count, 3)
    found = network(mark_domains(rows, domains)).class_logits
    torch.testing.assert_close(
        found, torch.nn.functional.batch_norm(rows, None, None, norm.weight, norm.bias, True)
    )
    for mean, var in (  # a target that was never seen has the statistics of the source
        (norm.running_mean, norm.running_var),
        (norm.source_mean, norm.source_var),
    ):
        torch.testing.assert_close(mean, 0.1 * rows.mean(dim=0))
        torch.testing.assert_close(var, 0.9 + 0.1 * rows.var(dim=0))
    network.eval()  # each row by what is known of its domain, however few there are
    with torch.no_grad():
        alone = network(mark_domains(rows[3:4], domains[3:4])).class_logits
        together = network(mark_domains(rows, domains)).class_logits
    torch.testing.assert_close(together[3:4], alone)


def test_few_rows_of_the_source_are_evaluated_by_what_normalized_them() -> None:
    """Otherwise their statistics would be those of no rows at all for ever."""
    network, norm = rows_by_domain()
    domains = (torch.arange(64) < 60).long()
    passes = [torch.randn(64, 3) + 2 for _ in range(3)]
    for rows in passes:
        network(mark_domains(rows, domains))
    mean, var = np.zeros(3), np.ones(3)
    for x in (rows.numpy() for rows in passes):
        mean, var = 0.9 * mean + 0.1 * x.mean(axis=0), 0.9 * var + 0.1 * x.var(axis=0, ddof=1)
    np.testing.assert_allclose(norm.source_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(norm.source_var, var, rtol=1e-5)
    network(mark_domains(torch.randn(64, 3), torch.ones(64)))  # none of the source
    np.testing.assert_allclose(norm.source_mean, mean, rtol=1e-5)
    with freeze_statistics(network):
        network(mark_domains(passes[0], domains))
    np.testing.assert_allclose(norm.source_mean, mean, rtol=1e-5)


def test_what_a_pass_adds_to_the_statistics_has_no_gradient() -> None:
    network, norm = rows_by_domain()
    rows = torch.randn(64, 3, requires_grad=True)
    network(mark_domains(rows, (torch.arange(64) < 60).long()))
    assert not norm.source_mean.requires_grad
    assert norm.source_mean.any()


@pytest.mark.parametrize("rare", [SOURCE, TARGET])
def test_one_row_joins_the_others_also_without_dropout(rare: int) -> None:
    network, norm = rows_by_domain()
    domains = torch.full((8,), 1 - rare)
    domains[3] = rare
    rows = torch.randn(8, 3)
    with disable_dropout(network):
        found = network(mark_domains(rows, domains)).class_logits
    expected = nn.functional.batch_norm(rows, None, None, norm.weight, norm.bias, True)
    torch.testing.assert_close(found, expected)


def test_a_few_labels_of_the_target_can_be_learned_with_the_source() -> None:
    changes = (
        "data.target_labels=10",
        "method.name=supervised",
        "batch.size=20",
        "batch.labeled=16",
    )
    trainer = Trainer(recipe_by_domain(*changes, "network.name=french-cnn", "data.image_size=28"))
    for step in range(8):  # one row of the target in some of them
        trainer.take_step(step)
    trainer.check_finite()
    trainer.check_weights()


def test_rows_without_a_mark_are_of_the_target() -> None:
    network, norm = rows_by_domain()
    norm.running_mean += 2
    norm.source_var += 3
    rows = torch.randn(4, 3)
    network.eval()
    plain = network(rows).class_logits
    assert torch.equal(network(mark_domains(rows, torch.ones(4))).class_logits, plain)
    as_source = network(mark_domains(rows, torch.zeros(4))).class_logits.detach().numpy()
    expected = standardize(rows.numpy(), norm.source_mean.numpy(), norm.source_var.numpy())
    scaled = expected * norm.weight.detach().numpy() + norm.bias.detach().numpy()
    np.testing.assert_allclose(as_source, scaled, rtol=1e-5, atol=1e-6)


def test_the_target_has_the_statistics_of_the_source_until_it_is_seen() -> None:
    network, norm = rows_by_domain()
    rows = torch.randn(8, 3) + 1
    network(mark_domains(rows, torch.zeros(8)))
    assert torch.equal(norm.running_mean, norm.source_mean)
    assert torch.equal(norm.running_var, norm.source_var)
    network(mark_domains(rows, torch.ones(8)))
    before = norm.running_mean.clone()
    network(mark_domains(rows + 1, torch.zeros(8)))
    assert torch.equal(norm.running_mean, before)
    assert not torch.equal(norm.source_mean, before)


def test_frozen_statistics_stay_in_both_domains() -> None:
    network, norm = rows_by_domain()
    rows = mark_domains(torch.randn(6, 3), torch.tensor([0, 0, 0, 1, 1, 1]))
    expected = network(rows).features
    state = copy.deepcopy(norm.state_dict())
    with freeze_statistics(network):
        assert torch.equal(network(rows).features, expected)
    assert all(torch.equal(value, state[name]) for name, value in norm.state_dict().items())


def test_statistics_of_both_domains_can_be_computed_again_as_plain_means() -> None:
    network, norm = rows_by_domain()
    batches = [torch.randn(6, 3) + number for number in range(3)]
    domains = torch.tensor([TARGET, SOURCE, SOURCE, TARGET, SOURCE, SOURCE])
    network(mark_domains(batches[0] + 7, domains))  # is forgotten
    update_bn((mark_domains(each, domains) for each in batches), network)
    for mean, domain in ((norm.running_mean, TARGET), (norm.source_mean, SOURCE)):
        expected = torch.stack([each[domains == domain].mean(dim=0) for each in batches])
        torch.testing.assert_close(mean, expected.mean(dim=0))


def test_a_mixture_is_of_the_domain_that_has_more_of_it() -> None:
    images = torch.rand(2, 1, 4, 4)
    marked = mark_domains(images, torch.tensor([SOURCE, TARGET]))
    mixed = blend(marked, marked.flip(0), torch.tensor([0.7, 0.8]))
    assert find_targets(mixed, 1).tolist() == [False, True]
    assert torch.equal(mixed[:, :1], blend(images, images.flip(0), torch.tensor([0.7, 0.8])))


def test_plain_weights_set_the_statistics_of_both_domains() -> None:
    settings = DigitsCNNSettings()
    plain = build_network(settings, 1, 10, 28, seed=0, student=0)
    plain(torch.rand(8, 1, 28, 28))
    both = settings.model_copy(update={"batch_norm": "by-domain"})
    network = build_network(both, 1, 10, 28, seed=0, student=0)
    network.load_state_dict(plain.state_dict())
    layers = [each for each in network.modules() if isinstance(each, BatchNormByDomain)]
    assert len(layers) == 3
    for layer in layers:
        assert torch.equal(layer.source_mean, layer.running_mean)
        assert layer.source_mean.any()


def test_a_network_without_batch_norm_is_refused() -> None:
    settings = MLPSettings(norm="layer", batch_norm="by-domain")
    with pytest.raises(UserError, match="no batch norm"):
        build_network(settings, 4, 10, None, seed=0, student=0)


def test_views_of_a_part_of_the_batch_carry_the_domains_of_its_rows() -> None:
    data = prepare(DataSettings(source="digits-8x8", target="mnist-5k", image_size=8), seed=0)
    views = Views(labeled=("weak",), unlabeled=("weak", "weak"))
    batch = BatchLoader(data, BatchSettings(size=12, labeled=4), 0, views, mark=True).batch(0)
    assert [find_targets(view, 1).tolist() for view in batch.views] == [
        [True] * 8 + [False] * 4,
        [True] * 8,
    ]
    views = Views(labeled=("weak", "weak"), unlabeled=("weak",))
    batch = BatchLoader(data, BatchSettings(size=12, labeled=4), 0, views, mark=True).batch(0)
    assert find_targets(batch.views[1], 1).tolist() == [False] * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ADAPTING)
def test_the_doctor_finds_every_method_healthy(name: str) -> None:
    strong = ["transforms.strong.translate=2"]
    recipe = recipe_by_domain(f"method.name={name}", *NEEDED.get(name, []), *strong)
    assert examine(recipe).findings == []


@pytest.mark.slow
def test_stop_and_resume_bit_for_bit_and_export_with_the_targets_statistics(tmp_path: Path) -> None:
    whole = train(recipe_by_domain(), tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe_by_domain(), tmp_path / "stopped", RaisesSignalAt(13))
    assert_equal_runs(resume(tmp_path / "stopped"), whole)
    export = export_run(whole, "safetensors")
    tensors, _ = read_tensors(export.path)
    trained, _ = read_tensors(whole.model)
    assert not any("source" in name for name in tensors)
    assert export.card.network.batch_norm == "together"
    exported = tensors["network.trunk.0.1.running_mean"]
    assert torch.equal(exported, trained["student1.trunk.0.1.running_mean"])
    assert not torch.equal(exported, trained["student1.trunk.0.1.source_mean"])
    assert export_run(whole, "onnx").difference < 1e-5


@pytest.mark.slow
def test_two_processes_keep_the_statistics_of_both_domains(tmp_path: Path) -> None:
    run = train(recipe_by_domain("schedule.epochs=1", "device.processes=2"), tmp_path / "run")
    tensors, _ = read_tensors(Run(run.folder).model)
    mean, of_source = (tensors[f"student1.trunk.0.1.{name}_mean"] for name in ("running", "source"))
    assert mean.any()
    assert of_source.any()
    assert not torch.equal(mean, of_source)


def test_one_domain_cannot_be_normalized_apart() -> None:
    with pytest.raises(UserError, match="two domains"):
        Trainer(small_recipe("network.batch_norm=by-domain"))


def test_both_networks_of_an_imbalanced_pair_must_normalize_alike() -> None:
    strong = 'method.strong_network={name="quick-cnn"}'
    with pytest.raises(UserError, match="differ"):
        Trainer(recipe_by_domain("method.name=imbalanced-student", strong))
