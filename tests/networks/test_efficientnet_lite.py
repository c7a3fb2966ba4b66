import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.support.trunk_weights import draw_weights
from torch import Tensor, nn

from dualstudent import Trainer, load_recipe, prepare_arrays
from dualstudent.errors import NotKeptWarning, UserError
from dualstudent.generators import seeded_rng
from dualstudent.networks import EfficientNetLite0, EfficientNetLite1, EfficientNetLite2
from dualstudent.networks import weights as weights_module
from dualstudent.networks.build import build_network
from dualstudent.networks.efficientnet_lite import EfficientNetLite, EfficientNetLite0Settings
from dualstudent.networks.weights import Published, read_published, read_weights
from dualstudent.recipes.reading import to_toml, validate

every_size = pytest.mark.parametrize(
    "kind", [EfficientNetLite0, EfficientNetLite1, EfficientNetLite2]
)
COUNTS = {EfficientNetLite0: 4_652_008, EfficientNetLite1: 5_416_680, EfficientNetLite2: 6_092_072}


def build_reference(kind: type[EfficientNetLite], image_size: int | None = None) -> nn.Module:
    """The network of another program, with random weights and statistics."""
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="pip install -e .[dev]")
    name = kind.Settings.model_fields["name"].default
    with seeded_rng("reference"):
        changes = {} if image_size is None else {"image_size": image_size}
        reference: nn.Module = package.EfficientNet.from_name(name, **changes)
        draw_weights(reference)
    return reference.eval()


def build_ours(kind: type[EfficientNetLite], state: dict[str, Tensor], folder: Path) -> Any:
    """Our network with the weights of a state dict; its class head is the reference's."""
    torch.save(state, folder / "weights.pth")
    network = kind(classes=1000, weights=str(folder / "weights.pth"))
    network.load_pretrained()
    network.heads.classify.load_state_dict({key: state[f"_fc.{key}"] for key in ("weight", "bias")})
    return network.eval()


def draw_images(size: int, count: int = 2) -> Tensor:
    with seeded_rng("images", size):
        coarse = torch.rand(count, 3, 7, 7)
    return nn.functional.interpolate(coarse, size, mode="bicubic") * 2 - 1


@every_size
@pytest.mark.parametrize("size", [32, 47, 160])
@torch.no_grad()
def test_any_weights_give_the_logits_of_an_independent_program(
    kind: type[EfficientNetLite], size: int, tmp_path: Path
) -> None:
    reference = build_reference(kind, size)
    network = build_ours(kind, reference.state_dict(), tmp_path)
    images = draw_images(size)
    expected = reference(images)
    assert (expected[0] - expected[1]).abs().max() > 1e-2  # they tell images apart
    torch.testing.assert_close(network(images).class_logits, expected, atol=1e-4, rtol=1e-4)


@every_size
@torch.no_grad()
def test_the_published_weights_give_the_logits_of_an_independent_program(
    kind: type[EfficientNetLite],
) -> None:
    pytest.importorskip(
        kind.published.package.replace("-", "_"), reason="pip install .[pretrained]"
    )
    state = read_published(kind.published)
    reference = build_reference(kind)
    reference.load_state_dict(state)
    network = kind(classes=1000)
    network.load_pretrained()
    network.heads.classify.load_state_dict({key: state[f"_fc.{key}"] for key in ("weight", "bias")})
    size = {EfficientNetLite0: 224, EfficientNetLite1: 240, EfficientNetLite2: 260}[kind]
    images = draw_images(size, 1)
    found = network.eval()(images).class_logits
    torch.testing.assert_close(found, reference(images), atol=1e-4, rtol=1e-4)


@every_size
def test_the_number_of_parameters_is_the_published_one(kind: type[EfficientNetLite]) -> None:
    network = kind(classes=1000)
    head = sum(p.numel() for p in network.heads.follow.parameters())
    assert sum(p.numel() for p in network.parameters()) - head == COUNTS[kind]


@torch.no_grad()
def test_gray_images_count_as_red_green_and_blue(tmp_path: Path) -> None:
    own = EfficientNetLite0(weights="random").eval()
    torch.save(own.state_dict(), tmp_path / "own.pt")
    gray = EfficientNetLite0(channels=1, weights=str(tmp_path / "own.pt")).eval()
    gray.load_pretrained()
    images = draw_images(40)[:, :1]
    torch.testing.assert_close(gray.features(images), own.features(images.expand(-1, 3, -1, -1)))


def test_safetensors_and_state_dicts_give_the_same_weights(tmp_path: Path) -> None:
    state = EfficientNetLite0(weights="random").trunk.state_dict()
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "a.pth")
    for name in ("a.safetensors", "a.pth"):
        network = EfficientNetLite0(weights=str(tmp_path / name))
        network.load_pretrained()
        for key, tensor in network.trunk.state_dict().items():
            assert torch.equal(tensor, state[key])


def test_without_a_start_the_weights_are_those_of_the_seed() -> None:
    built = [
        build_network(EfficientNetLite0Settings(weights=w), 3, 5, 32, seed=1, student=0)
        for w in ("imagenet", "random")
    ]
    for first, second in zip(*(each.parameters() for each in built), strict=True):
        assert torch.equal(first, second)  # weights are loaded when training starts


def write_bad_files(folder: Path) -> dict[str, str]:
    """File → what its message must say."""
    state = EfficientNetLite0(weights="random").trunk.state_dict()
    torch.save(state, folder / "whole.pth")
    content = (folder / "whole.pth").read_bytes()
    (folder / "truncated.pth").write_bytes(content[: len(content) // 2])
    (folder / "text.pth").write_text("not weights at all")
    (folder / "empty.pth").write_bytes(b"")
    (folder / "text.safetensors").write_text("not weights at all")
    torch.save([1, 2], folder / "list.pth")
    torch.save(nn.Linear(2, 2), folder / "code.pth")
    less = {key: value for key, value in state.items() if "blocks.15" not in key}
    torch.save(less, folder / "less.pth")
    torch.save(EfficientNetLite1(weights="random").trunk.state_dict(), folder / "more.pth")
    torch.save(EfficientNetLite0(channels=4, weights="random").state_dict(), folder / "four.pth")
    wrong = state | {"head.norm.bias": torch.zeros(7)}
    torch.save(wrong, folder / "shape.pth")
    return {
        "missing.pth": "cannot be read",
        **dict.fromkeys(("truncated.pth", "text.pth", "empty.pth"), "or no file of weights"),
        **dict.fromkeys(("text.safetensors", "list.pth", "code.pth"), "or no file of weights"),
        "less.pth": "it lacks blocks.15.depthwise.convolution.weight",
        "more.pth": "it has no place for blocks.16",
        "four.pth": "for images with 4 channels, not 3",
        "shape.pth": "it has another shape of head.norm.bias",
    }


def test_a_file_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    for name, said in write_bad_files(tmp_path).items():
        network = EfficientNetLite0(weights=str(tmp_path / name))
        before = [p.clone() for p in network.parameters()]
        with pytest.raises(UserError, match=said) as refused:
            network.load_pretrained()
        assert str(tmp_path / name) in str(refused.value)
        assert "\n" not in str(refused.value)
        assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"the extra 'pretrained'"):
        EfficientNetLite0().load_pretrained()


def test_a_changed_published_file_is_not_even_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_weights").mkdir()
    (tmp_path / "my_weights" / "__init__.py").write_text("raise AssertionError('was run')")
    torch.save({"a": torch.zeros(2)}, tmp_path / "my_weights" / "a.pth")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("was parsed"))
    with pytest.raises(UserError, match="is not the published file"):
        read_published(Published("my-weights", "a.pth", "0" * 64))


def test_weights_are_unpickled_in_one_place_and_without_code() -> None:
    source = Path(weights_module.__file__).parents[1]
    found = [path for path in source.rglob("*.py") if "torch.load(" in path.read_text("utf-8")]
    assert found == [Path(weights_module.__file__)]
    assert "weights_only=True" in Path(weights_module.__file__).read_text("utf-8")


def test_a_recipe_says_the_normalization_of_the_weights() -> None:
    for changes in ([], ["normalization.mean=[0.1]"]):  # the recipe's own is not kept
        recipe = load_recipe("demo", ["network.name=efficientnet-lite0", *changes])
        (mean,), (std,) = recipe.normalization.mean, recipe.normalization.std
        bytes_ = torch.tensor([0, 127, 255])
        torch.testing.assert_close((bytes_ / 255 - mean) / std, (bytes_ - 127) / 128)
        again = validate(tomllib.loads(to_toml(recipe)), "again")
        assert again == recipe
    random = load_recipe("demo", ["network.name=efficientnet-lite0", "network.weights=random"])
    assert random.normalization == load_recipe("demo").normalization


def test_a_replaced_normalization_is_said() -> None:
    with pytest.warns(NotKeptWarning, match="efficientnet-lite1 need their own normalization"):
        load_recipe("demo", ["network.name=efficientnet-lite1", "normalization.mean=[0.1]"])


def test_data_from_python_need_the_normalization_of_the_weights(tmp_path: Path) -> None:
    torch.save(EfficientNetLite0(weights="random").state_dict(), tmp_path / "own.pt")
    weights = f"network.weights={tmp_path / 'own.pt'}"
    batch = ("batch.size=4", "batch.labeled=2")
    recipe = load_recipe("demo", [*batch, "network.name=efficientnet-lite0", weights])
    images, labels = np.zeros((6, 32, 32), np.uint8), [0, 1, 0, -1, -1, -1]
    Trainer(recipe, prepare_arrays(images, labels, normalization=recipe.normalization)).close()
    with pytest.raises(UserError, match="need the normalization"):
        Trainer(recipe, prepare_arrays(images, labels))


def test_a_file_that_would_run_code_does_not(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)  # type: ignore[return-value]

    torch.save({"a": Bomb()}, tmp_path / "bomb.pth")
    with pytest.raises(UserError, match="or no file of weights"):
        read_weights(tmp_path / "bomb.pth")
    assert not (tmp_path / "ran").exists()
