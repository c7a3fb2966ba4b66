import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent.errors import UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks import MLP
from dualstudent.networks.build import build_network
from dualstudent.networks.digits_cnn import DigitsCNNSettings
from dualstudent.networks.mlp import MLPSettings


def by_hand(network: MLP, vectors: Tensor, norm: str) -> Tensor:
    """The class logits of two hidden layers in training mode, without dropout."""
    state, hidden = network.state_dict(), vectors
    for layer in (0, 4):
        linear = hidden @ state[f"trunk.{layer}.weight"].T + state[f"trunk.{layer}.bias"]
        dim = 0 if norm == "batch" else 1
        centerd = linear - linear.mean(dim, keepdim=True)
        scaled = centerd / (centerd.square().mean(dim, keepdim=True) + 1e-5).sqrt()
        scaled = scaled * state[f"trunk.{layer + 1}.weight"] + state[f"trunk.{layer + 1}.bias"]
        hidden = torch.where(scaled > 0, scaled, 0.1 * scaled)
    return F.linear(hidden, state["heads.classify.weight"], state["heads.classify.bias"])


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_two_layers_compute_what_the_text_says(norm: str) -> None:
    with seeded_rng("mlp"):
        network = MLP(5, 3, hidden=(7, 4), norm=norm, dropout=0.0)
        vectors = torch.randn(6, 5)
    torch.testing.assert_close(network(vectors).class_logits, by_hand(network, vectors, norm))


def test_dropout_perturbs_in_training_and_not_in_evaluation() -> None:
    network, vectors = MLP(5, 3, norm="layer", dropout=0.5), torch.ones(2, 5)
    assert not torch.equal(network(vectors).features, network(vectors).features)
    network.eval()
    assert torch.equal(network(vectors).features, network(vectors).features)


def test_the_initial_state_is_a_function_of_seed_and_student() -> None:
    def weights(seed: int, student: int) -> Tensor:
        network = build_network(MLPSettings(hidden=(8,)), 5, 3, None, seed, student)
        weight: Tensor = network.state_dict()["trunk.0.weight"]
        return weight

    assert torch.equal(weights(0, 0), weights(0, 0))
    assert not torch.equal(weights(0, 0), weights(0, 1))
    assert weights(0, 0).shape == (8, 5)


def test_networks_for_images_and_for_vectors_are_not_confused() -> None:
    with pytest.raises(UserError, match=r"'mlp' .*feature vectors, .*images"):
        build_network(MLPSettings(), 1, 10, image_size=28, seed=0, student=0)
    with pytest.raises(UserError, match=r"'digits-cnn' .*images, .*feature vectors"):
        build_network(DigitsCNNSettings(), 64, 10, image_size=None, seed=0, student=0)


def test_without_hidden_layers_the_heads_are_linear_in_the_vectors() -> None:
    network = MLP(features=5, classes=3, hidden=())
    vectors = torch.rand(4, 5)
    expected = F.linear(vectors, *network.heads.classify.parameters())
    torch.testing.assert_close(network(vectors).class_logits, expected)


def test_heads_may_start_small_and_nothing_else_does() -> None:
    with seeded_rng("mlp"):
        usual = MLP(5, 3, hidden=(7,))
    with seeded_rng("mlp"):
        small = MLP(5, 3, hidden=(7,), head_scale=0.25)
    for name, tensor in small.state_dict().items():
        scale = 0.25 if name.startswith("heads.") else 1
        assert torch.equal(tensor, scale * usual.state_dict()[name])
