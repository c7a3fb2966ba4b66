import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from dualstudent import UserError
from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.losses import squared_distance
from dualstudent.methods import PiModel, PiModelSettings
from dualstudent.networks import DigitsCNN
from tests.support.recipes import small_recipe
from tests.support.students import Recorder, reached_parts, small_batch, small_network

BOTH = PiModelSettings(gradient_through="both")


def double_batch() -> Batch:
    batch = small_batch()
    return replace(batch, views=tuple(view.double() for view in batch.views))


def probabilities(network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Of the consistency head for view 1 and of the class head for view 2."""
    follows = network(batch.views[0]).consistency_logits.softmax(dim=1)
    leads = network(batch.views[1]).class_logits.softmax(dim=1)
    return follows, leads


def gradient_along(
    network: nn.Module, direction: list[Tensor], loss: Callable[[nn.Module], Tensor]
) -> float:
    """The directional derivative by central differences."""
    values = []
    for sign in (1, -1):
        moved = copy.deepcopy(network)
        with torch.no_grad():
            for p, d in zip(moved.parameters(), direction, strict=True):
                p.add_(d, alpha=sign * 1e-6)
            values.append(loss(moved).item())
    return (values[0] - values[1]) / 2e-6


@pytest.mark.parametrize("gradient_through", ["one", "both"])
def test_consistency_has_the_numerical_gradient(gradient_through: str) -> None:
    network, batch = small_network().double(), double_batch()
    settings = PiModelSettings.model_validate({"gradient_through": gradient_through})
    (loss,) = PiModel([network], settings).losses(batch, ramp=1.0)
    term = loss.terms["consistency"]
    torch.autograd.backward(term)
    constant = probabilities(copy.deepcopy(network), batch)[1]

    def expected(moved: nn.Module) -> Tensor:
        follows, leads = probabilities(moved, batch)
        target = leads if gradient_through == "both" else constant
        return 100 * squared_distance(follows, target).mean()

    assert term.item() == pytest.approx(expected(copy.deepcopy(network)).item(), rel=1e-12)
    for number in range(3):
        with seeded_rng("direction", number):
            direction = [torch.randn_like(p) for p in network.parameters()]
        along = sum(
            float((p.grad * d).sum())
            for p, d in zip(network.parameters(), direction, strict=True)
            if p.grad is not None
        )
        assert along == pytest.approx(gradient_along(network, direction, expected), rel=1e-5)


def test_gradient_through_one_shows_view_2_without_gradient() -> None:
    recorder, batch = Recorder(small_network()), small_batch()
    PiModel([recorder]).losses(batch, ramp=1.0)
    assert [carries_gradient for _, carries_gradient in recorder.shown] == [True, False]
    assert recorder.shown[0][0] is batch.views[0]
    assert recorder.shown[1][0] is batch.views[1]


def test_gradient_through_both_reaches_the_head_that_leads() -> None:
    network = small_network()
    (loss,) = PiModel([network], BOTH).losses(small_batch(), ramp=1.0)
    torch.autograd.backward(loss.terms["consistency"])
    assert reached_parts(network) == {"trunk", "class head", "consistency head"}


def test_one_or_both_is_the_same_loss() -> None:
    values = [
        PiModel([small_network()], settings).losses(small_batch(), ramp=1.0)[0].terms
        for settings in (PiModelSettings(), BOTH)
    ]
    for name, term in values[0].items():
        assert term.item() == values[1][name].item() > 0


def test_dropout_and_batch_statistics_are_those_of_training_in_both_passes() -> None:
    with seeded_rng("network"):
        network = DigitsCNN(classes=3, dropout=0.5)
    batch = small_batch()
    same_view = replace(batch, views=(batch.views[0], batch.views[0]))
    with torch.no_grad():  # heads that agree leave dropout as the only difference
        for p, q in zip(
            network.heads.follow.parameters(), network.heads.classify.parameters(), strict=True
        ):
            p.copy_(q)
    with seeded_rng("dropout"):
        terms = PiModel([network]).losses(same_view, ramp=1.0)[0].terms
    assert terms["logit_distance"] == 0
    assert terms["consistency"] > 0
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert [int(norm.num_batches_tracked or 0) for norm in norms] == [2, 2, 2]


def test_kl_with_gradient_through_both_is_refused() -> None:
    with pytest.raises(UserError, match=r"method\.gradient_through = 'both': .*'mse'"):
        small_recipe("method.name=pi", "method.distance=kl", "method.gradient_through=both")
