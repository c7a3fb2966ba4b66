import copy
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dualstudent import UserError, train
from dualstudent.adversarial import RepeatedDropout, virtual_adversarial
from dualstudent.generators import seeded_rng
from dualstudent.losses import entropy, kl
from dualstudent.methods import VAT, Task, VATSettings
from dualstudent.networks import DigitsCNN
from dualstudent.prediction import Prediction
from tests.support.linear_student import Array, LinearSoftmax, linear_batch, probabilities
from tests.support.recipes import small_recipe
from tests.support.students import begun, reached_parts, small_batch, small_network

LABELS = [-1, -1, -1, 0, 2, 1]
EXACT = 1e-6  # a finite difference that float64 can resolve


def hessians(network: LinearSoftmax, x: Array) -> Array:
    """Wᵀ (diag p − p pᵀ) W: of KL(p(x) ‖ p(x + r)) at r = 0, for each point."""
    p = probabilities(x @ network.w.T)
    spread = np.einsum("bi,ij->bij", p, np.eye(p.shape[1])) - np.einsum("bi,bj->bij", p, p)
    return np.asarray(np.einsum("ck,bcd,dl->bkl", network.w, spread, network.w))


def adversarial(network: LinearSoftmax, x: Tensor, epsilon: float) -> Array:
    """r after one power iteration from what the global generator gives, by its definition."""
    start = torch.randn_like(x).numpy()
    moved = np.einsum("bkl,bl->bk", hessians(network, x.numpy()), start)
    return np.asarray(epsilon * moved / np.linalg.norm(moved, axis=1, keepdims=True))


def kl_of(p: Array, q: Array) -> Array:
    return np.asarray((p * (np.log(p) - np.log(q))).sum(axis=1))


def test_one_power_iteration_multiplies_by_the_hessian_once() -> None:
    network, x = LinearSoftmax(0), linear_batch(LABELS).views[0]
    torch.manual_seed(4)
    expected = adversarial(network, x, epsilon=2.0)
    torch.manual_seed(4)
    r = virtual_adversarial(network, x, 2.0, EXACT)
    np.testing.assert_allclose(r.numpy(), expected, rtol=0, atol=1e-5)


def test_many_power_iterations_find_the_dominant_direction_of_every_sample() -> None:
    network, x = LinearSoftmax(0), linear_batch(LABELS).views[0]
    r = virtual_adversarial(network, x, 1.0, EXACT, power_iterations=100).numpy()
    dominant = np.linalg.eigh(hessians(network, x.numpy()))[1][:, :, -1]
    np.testing.assert_allclose(np.abs((r * dominant).sum(axis=1)), 1, rtol=0, atol=1e-6)


def test_two_classes_have_one_direction_that_matters() -> None:
    """Then the Hessian has rank one, and one iteration is enough, in float32 as well."""
    network, x = LinearSoftmax(1, classes=2).float(), linear_batch(LABELS).views[0].float()
    r = virtual_adversarial(network, x, 3.0, VATSettings().finite_difference)
    across = np.diff(network.w, axis=0)[0]
    cosine = r.numpy() @ across / (3 * np.linalg.norm(across))
    np.testing.assert_allclose(np.abs(cosine), 1, rtol=0, atol=1e-5)


def multiply_by_hessian(network: nn.Module, x: Tensor, start: Tensor) -> Tensor:
    """H d by double backward, with H of KL(p(x) ‖ p(x + r)) at r = 0."""
    change = torch.zeros_like(x, requires_grad=True)
    target = network(x).class_logits.softmax(dim=1)
    divergence = kl(network(x + change).class_logits, target).sum()
    (slope,) = torch.autograd.grad(divergence, change, create_graph=True)
    (direction,) = torch.autograd.grad((slope * start).sum(), change)
    return direction


def cosines_with_exact_direction(finite_difference: float, pixels: int) -> Tensor:
    """Of one power iteration in float32 with H d in float64."""
    with seeded_rng("digits"):
        network, images = DigitsCNN(dropout=0.0), torch.rand(16, 1, pixels, pixels) * 2 - 1
    torch.manual_seed(5)
    start = torch.randn_like(images).double()
    torch.manual_seed(5)
    r = virtual_adversarial(network, images, 1.0, finite_difference).double()
    direction = multiply_by_hessian(copy.deepcopy(network).double(), images.double(), start)
    return torch.cosine_similarity(r.flatten(1), direction.flatten(1))


@pytest.mark.parametrize("pixels", [8, 28])
def test_the_default_finite_difference_is_sound_in_float32_and_others_are_not(pixels: int) -> None:
    default, coarse, published = (
        cosines_with_exact_direction(step, pixels).mean()
        for step in (VATSettings().finite_difference, 0.1, 1e-6)
    )
    assert default > 0.99
    assert coarse < default
    assert published < 0.5


def test_the_direction_is_that_of_the_network_with_its_dropout() -> None:
    """Dropout stays on in the search, with the same units off in all passes."""
    with seeded_rng("digits"):
        network, images = DigitsCNN(dropout=0.5), torch.rand(16, 1, 28, 28) * 2 - 1
    torch.manual_seed(5)
    repeated, start = RepeatedDropout(network), torch.randn_like(images)
    expected = multiply_by_hessian(repeated, images, start)
    torch.manual_seed(5)
    r = virtual_adversarial(RepeatedDropout(network), images, 1.0, 1e-2)
    assert torch.cosine_similarity(r.flatten(1), expected.flatten(1)).mean() > 0.99
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    without = multiply_by_hessian(network, images, start)
    assert torch.cosine_similarity(r.flatten(1), without.flatten(1)).mean() < 0.9


def test_repeated_dropout_repeats_it_and_leaves_the_generator_alone() -> None:
    with seeded_rng("digits"):
        network, images = DigitsCNN(dropout=0.5), torch.rand(4, 1, 28, 28)
    torch.manual_seed(5)
    repeated, other = RepeatedDropout(network), RepeatedDropout(network)
    state = torch.get_rng_state()
    first, again, different = (each(images).class_logits for each in (repeated, repeated, other))
    assert torch.equal(first, again)
    assert not torch.equal(first, different)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_search_leaves_no_trace_in_the_network() -> None:
    network, images = small_network(), small_batch().views[0]
    before = copy.deepcopy(network.state_dict())
    network.get_submodule("trunk.0").eval()  # a mode of its own, to be kept
    modes = [module.training for module in network.modules()]
    virtual_adversarial(network, images, 2.0, 0.1, power_iterations=3)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert [module.training for module in network.modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in network.parameters())
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(norm.track_running_stats for norm in norms)


def test_the_search_normalizes_by_the_batch() -> None:
    found = []
    for remembered in (0.0, 7.0):
        network = small_network()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.get_buffer("running_mean").add_(remembered)
        torch.manual_seed(6)
        found.append(virtual_adversarial(network, small_batch().views[0], 2.0, 0.1))
    assert torch.equal(found[0], found[1])


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Prediction:
        logits = 0 * x.flatten(1)
        return Prediction(logits, logits, logits)


def test_there_is_no_direction_where_nothing_changes_the_prediction() -> None:
    r = virtual_adversarial(Constant(), small_batch().views[0], 2.0, 0.1)
    assert torch.equal(r, torch.zeros_like(r))


class Witness(Constant):
    def __init__(self) -> None:
        super().__init__()
        self.saw: list[tuple[bool, bool, torch.dtype]] = []

    def forward(self, x: Tensor) -> Prediction:
        fast = (torch.is_autocast_enabled("cpu"), torch.backends.cudnn.allow_tf32)
        self.saw.append((*fast, x.dtype))
        return super().forward(x)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_search_is_made_in_full_precision(
    allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    witness = Witness()
    with torch.autocast("cpu", torch.bfloat16):
        virtual_adversarial(witness, small_batch().views[0].bfloat16(), 2.0, 0.1)
        assert torch.is_autocast_enabled("cpu")
    assert witness.saw == [(False, False, torch.float32)] * 2
    assert torch.backends.cudnn.allow_tf32 is allowed


def test_loss_has_the_values_of_its_definition() -> None:
    network, batch = LinearSoftmax(0), linear_batch(LABELS)
    settings = VATSettings(
        adversarial_weight=0.7, epsilon=1.5, finite_difference=EXACT, entropy_weight=0.3
    )
    torch.manual_seed(7)
    RepeatedDropout(network)  # is drawn first
    x, r = batch.views[0].numpy(), adversarial(network, batch.views[0], epsilon=1.5)
    torch.manual_seed(7)
    (loss,) = begun(VAT([network], settings)).losses(batch, ramp=0.5)
    p, q = probabilities(x @ network.w.T), probabilities((x + r) @ network.w.T)
    expected = {
        "classification": -np.log(p[[3, 4, 5], [0, 2, 1]]).mean(),
        "adversarial": 0.7 * 0.5 * kl_of(p, q).mean(),
        "entropy": 0.3 * 0.5 * -(p * np.log(p)).sum(axis=1).mean(),
    }
    terms = {name: term.item() for name, term in loss.terms.items()}
    assert terms == pytest.approx(expected, rel=1e-5)


def test_gradient_takes_target_and_direction_as_constants() -> None:
    network, batch = LinearSoftmax(0), linear_batch(LABELS)
    settings = VATSettings(epsilon=1.5, finite_difference=EXACT)
    torch.manual_seed(7)
    RepeatedDropout(network)  # is drawn first
    x, r = batch.views[0].numpy(), adversarial(network, batch.views[0], epsilon=1.5)
    torch.manual_seed(7)
    (loss,) = begun(VAT([network], settings)).losses(batch, ramp=1.0)
    (gradient,) = torch.autograd.grad(loss.terms["adversarial"], network.weight)
    p, q = probabilities(x @ network.w.T), probabilities((x + r) @ network.w.T)
    expected = (q - p).T @ (x + r) / len(x)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=0, atol=1e-5)


def test_labeled_samples_take_part_like_the_others() -> None:
    terms = []
    for labels in ([-1] * 6, LABELS):
        torch.manual_seed(8)
        (loss,) = begun(VAT([LinearSoftmax(0)])).losses(linear_batch(labels), ramp=1.0)
        terms.append(loss.terms["adversarial"].item())
    assert terms[0] == terms[1] > 0


def test_entropy_is_no_term_unless_it_is_asked_for() -> None:
    (loss,) = begun(VAT([LinearSoftmax(0)])).losses(linear_batch(LABELS), ramp=1.0)
    assert list(loss.terms) == ["classification", "adversarial"]


def test_entropy_has_finite_gradient_for_a_certain_prediction() -> None:
    logits = torch.tensor([[500.0, 0.0, 0.0]], requires_grad=True)
    value = entropy(logits)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.item() == 0
    assert gradient.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("term", ["classification", "adversarial", "entropy"])
def test_every_term_reaches_the_trunk_and_the_class_head_only(term: str) -> None:
    network, settings = small_network(), VATSettings(epsilon=1.0, entropy_weight=1.0)
    (loss,) = begun(VAT([network], settings)).losses(small_batch(), ramp=1.0)
    assert all(p.grad is None for p in network.parameters())
    torch.autograd.backward(loss.terms[term])
    assert reached_parts(network) == {"trunk", "class head"}


def test_batch_norm_remembers_the_labeled_images_and_nothing_else() -> None:
    network, alone, batch = small_network(), small_network(), small_batch()
    begun(VAT([network], VATSettings(epsilon=1.0, power_iterations=2))).losses(batch, ramp=1.0)
    alone(batch.views[0][batch.labels >= 0])
    for (name, buffer), expected in zip(network.named_buffers(), alone.buffers(), strict=True):
        assert torch.equal(buffer, expected), name


@pytest.mark.parametrize(("average", "divisor"), [("batch", 16), ("labeled", 4)])
def test_labeled_images_are_classified_in_a_pass_of_their_own(average: str, divisor: int) -> None:
    network, alone, batch = small_network(), small_network(), small_batch()
    settings = VATSettings.model_validate({"epsilon": 1.0, "classification_average": average})
    (loss,) = begun(VAT([network], settings)).losses(batch, ramp=1.0)
    labeled = batch.labels >= 0
    logits = alone(batch.views[0][labeled]).class_logits.detach().double().numpy()
    rows = range(len(logits)), batch.labels[labeled].tolist()
    expected = -np.log(probabilities(logits)[rows]).sum() / divisor
    assert loss.terms["classification"].item() == pytest.approx(expected, rel=1e-5)


def test_clean_and_changed_images_have_the_same_dropout() -> None:
    """With ε → 0 nothing but dropout could tell them apart."""
    with seeded_rng("network"):
        network = DigitsCNN(classes=3, dropout=0.5)
    (loss,) = begun(VAT([network], VATSettings(epsilon=1e-6))).losses(small_batch(), ramp=1.0)
    assert abs(loss.terms["adversarial"].item()) < 1e-6


def test_epsilon_that_reaches_half_of_the_range_everywhere_is_refused() -> None:
    task = Task(epochs=1, samples=9, classes=3, image_shape=(3, 4, 4), value_range=5.0)
    limit = 0.5 * 5.0 * sqrt(48)
    VAT([Constant()], VATSettings(epsilon=0.999 * limit)).begin(task)
    with pytest.raises(UserError, match=r"^method\.epsilon = 17\.3205: .*less than 17\.32$"):
        VAT([Constant()], VATSettings(epsilon=limit)).begin(task)


def test_the_default_epsilon_is_refused_for_tiny_images_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match=r"method\.epsilon = 8: .*less than 8$"):
        train(small_recipe("method.name=vat"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.learns
def test_it_learns(tmp_path: Path) -> None:
    run = train(small_recipe("method.name=vat", "method.epsilon=1"), tmp_path / "run")
    # 37.5, and 25 to 29 with other seeds; chance is 90.
    assert run.read_result()["error"] < 60
