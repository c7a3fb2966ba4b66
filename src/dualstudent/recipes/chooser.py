"""Chooses a recipe from a few facts about images, with a reason for every choice."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from dualstudent.batch import count_epoch_steps
from dualstudent.methods import METHODS, list_settings
from dualstudent.recipes.reading import merge
from dualstudent.settings import Table
from dualstudent.trunks.trunk import count_features

AS_SET = "as you set it"
"""The reason of a setting that the user gave."""

# Networks to choose from, with their learning rates; other networks, and Dual Student, have 0.1.
LEARNING_RATES = {"whitened-cnn": 0.2, "cnn13": 0.03, "resnext50": 0.03}
LABELED, UNLABELED = 32, 96  # samples per batch, as in the demo
HEADS: Table = {"name": "mlp", "hidden": [], "head_scale": 0.01}  # on the features of a trunk

_LEARNING_RATE = 0.1
_HEAD_LEARNING_RATE = 0.003  # of a linear layer on 1,280 features, which fits few labels at once
_HEAD_THRESHOLD = 0.5  # of FixMatch: features are right more often than sure
_METHOD = "fixmatch"
_ADAPTING_METHOD = "dual-student"  # on features, and with a layer that both domains share
_ADAPTING_HIDDEN = [256]
_DUAL_STUDENT = {  # if it is asked for
    "consistency_weight": 10,
    "stabilization_weight": 100,
    "confidence_threshold": 0.6,
}
# The published 100 and 75 belong to long ramps. With them, short trainings on vectors can end with
# one class for all: accuracy on iris, 3 seeds, 0.33 to 0.71; with these 0.83 to 0.91. On images ICT
# does so, too, while MixMatch learns with 75 and less with 1.
_SHORT_WEIGHTS = {"ict": 10.0}
_SHORT_WEIGHTS_OF_VECTORS = _SHORT_WEIGHTS | {"mixmatch": 1.0}
_STEPS, _STEPS_ON_CUDA = 3_000, 20_000
_GRAY_STEPS = 6_000  # on a CPU, of small gray images: a step takes half as long as in color
_MANY_UNLABELED = 2_000  # with fewer, 6,000 steps gained nothing
_HEAD_STEPS = 800  # on features of a trunk, more would only fit the few labels
_PHOTO = 128  # pixels a side from which a network for photos is chosen
_LARGE = 48  # pixels a side from which a network has one more block
_RANDAUGMENT = 2  # operations per strong view
_AFFINE = (10.0, 0.1, 0.1, 0.05)  # of strong views: degrees, log scale, shear, shift
_GENTLE_AFFINE = (15.0, 0.1, 0.15, 0.05)  # of weak views, for methods that have no strong ones
_CUTOUT = 0.5
_ANY_COLOR = (0.0, 0.0, 1.0, 0.5)  # jitter of brightness, contrast, saturation and hue
_FEWEST_EPOCHS, _TESTS = 2, 20
_WARMUP_STEPS = 50  # at least; with the 6 steps of a pass over 600 images, networks collapsed
# Fine-tuning: steps, learning rates, and blocks that a CPU trains, with most weights of the trunk.
_TUNING_STEPS, _TUNING_STEPS_ON_GPU = 200, 2_000
_TUNING = {"learning_rate": 0.01, "trunk_scale": 0.1, "layer_decay": 0.8}
_TUNED_BLOCKS = 6


@dataclass(frozen=True)
class ImageFacts:
    """What a recipe is chosen from.

    Attributes:
        channels: of the images.
        size: shorter side in pixels, as trained on.
        labeled: number of images to train with that have a label.
        unlabeled: number of images for the unsupervised terms; 0 if all have a label.
        may_be_mirrored: whether mirror images look like their class.
        gpu: the GPU that is used; None for a CPU.
        on_features: whether the features of a trunk take the place of the images.
        tuned: name of the pretrained network that is to be trained; None for another one.
        shares: of the classes among the unlabeled images; empty if even; None if unknown.
        adapts: whether the images are of two domains.
        color_matters: whether colors alone tell the classes apart.
    """

    channels: int
    size: int
    labeled: int
    unlabeled: int
    may_be_mirrored: bool
    gpu: Literal["cuda", "mps"] | None
    on_features: bool = False
    tuned: str | None = None
    shares: tuple[float, ...] | None = None
    adapts: bool = False
    color_matters: bool = False


@dataclass(frozen=True)
class Choice:
    """A chosen recipe with reasons.

    Attributes:
        table: the recipe as a table without its data, not validated yet.
        reasons: key → why it has its value.
    """

    table: Table
    reasons: dict[str, str]


def choose_recipe(facts: ImageFacts, wanted: Table | None = None) -> Choice:
    """Choose a recipe that suits the images, this machine, and the user's settings.

    Args:
        facts: about the images and the machine.
        wanted: the user's settings as a recipe table; they take precedence.

    Example:
        >>> digits = ImageFacts(1, 28, 100, 2_000, may_be_mirrored=False, gpu=None)
        >>> choose_recipe(digits).table["network"]["widths"]
        [16, 32, 64]
    """
    wanted = wanted or {}
    network, why_network = _choose_network(facts)
    network |= (apart := _choose_batch_norm(facts, network | wanted.get("network", {})))
    method = _find_method(facts, wanted)
    views, why_views = _choose_views(facts, method)
    batch = _choose_batch(facts, wanted.get("batch", {}))
    # At least 1: training refuses a batch that cannot be filled, and says why.
    size, labeled = batch["size"], batch["labeled"]
    per_epoch = max(1, count_epoch_steps(facts.labeled, facts.unlabeled, size, labeled))
    default = max(_FEWEST_EPOCHS, round(_choose_steps(facts) / per_epoch))
    epochs = wanted.get("schedule", {}).get("epochs", default)
    reasons = {
        "network.name": why_network,
        "method.name": f"{_explain_method(method)}; 'dualstudent methods' lists others",
        "batch.labeled": _explain_labeled(labeled, facts.labeled),
        "batch.size": _explain_batch(batch, facts.unlabeled),
        "schedule.epochs": f"of {per_epoch:,} steps each, {epochs * per_epoch:,} in all",
        **_explain_alignment(facts, wanted),
        **why_views,
        **_explain_tuning(facts),
        **({"network.batch_norm": "source and target are normalized apart"} if apart else {}),
    }
    # Heads on features begin near 0 and need no more than a pass.
    warmup = 1.0 if facts.on_features else max(1.0, _WARMUP_STEPS / per_epoch)
    table = make_table(facts, views, network, batch, epochs, wanted, warmup)
    for section in ("trunk", "device"):
        if "precision" in table.get(section, {}):
            reasons[f"{section}.precision"] = "this CPU computes faster with bfloat16"
    set_already = dict.fromkeys(_list_keys(wanted), AS_SET)
    return Choice(table, {key: set_already.get(key, why) for key, why in reasons.items()})


def make_table(
    facts: ImageFacts,
    views: Table,
    network: Table,
    batch: Mapping[str, int],
    epochs: int,
    wanted: Table,
    warmup: float = 1.0,
) -> Table:
    """Make the recipe of what was chosen, with the user's settings; warm-up is in epochs."""
    name, trained = _find_method(facts, wanted), _find_network(network, wanted)
    shape: tuple[int, ...] = (facts.channels, facts.size, facts.size)
    trunk = _look_up(wanted, "trunk", "name")
    if facts.on_features:
        shape = (count_features(trunk),)
    method = _choose_method(name, epochs, shape) | _choose_alignment(facts, wanted)
    if "batch_norm" in network and "strong_network" in method:
        method["strong_network"] |= {"batch_norm": network["batch_norm"]}
    chosen = {
        "transforms": views,
        "network": network,
        "method": method,
        "batch": dict(batch),
        "optimizer": _choose_optimizer(facts, name, trained, shape),
        "schedule": _make_schedule(epochs, warmup, wanted),
        "evaluation": {"every": max(1, epochs // _TESTS)},
        "device": _choose_device(facts, trained),
    }
    if trunk and facts.on_features and facts.gpu is None and has_fast_bfloat16():
        # With its name, since settings of a trunk without one would be replaced.
        chosen["trunk"] = {"name": trunk, "precision": "bf16-true"}
    return merge(chosen, wanted)


def _find_method(facts: ImageFacts, wanted: Table) -> str:
    """Return the name of the method that the user set, or else of the one that is chosen."""
    if name := _look_up(wanted, "method", "name"):
        return str(name)
    known = list_settings(_ADAPTING_METHOD)
    suits = all(key in known for key in wanted.get("method", {}))
    return _ADAPTING_METHOD if facts.adapts and facts.on_features and suits else _METHOD


def _explain_method(name: str) -> str:
    if uses_strong_views(name):
        return "learns from unlabeled images by their strongly changed views"
    return "two students teach each other what stays the same in all views"


def uses_strong_views(name: str) -> bool:
    """Return whether a method of ours learns from strong views, which only images have.

    Example:
        >>> uses_strong_views("fixmatch"), uses_strong_views("dual-student")
        (True, False)
    """
    return any(
        "strong" in policies
        for method in METHODS
        if method.Settings.model_fields["name"].default == name
        for policies in method.views
    )


def has_fast_bfloat16() -> bool:
    """Return whether this CPU has instructions for bfloat16; others imitate it, slowly."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # torch may lack them
    return any(getattr(torch.cpu, check, bool)() for check in checks)


def suit_method(name: str, epochs: int, shape: tuple[int, ...]) -> Table:
    """Return the settings of a method whose defaults suit only long trainings or certain data.

    Args:
        name: of the method.
        epochs: length of the training.
        shape: of a sample, (channels, H, W) or (features,).

    Example:
        >>> suit_method("pi+fastswa", 100, (3, 32, 32))
        {'classification_average': 'labeled', 'average_from': 75, 'average_every': 1}
    """
    on_vectors = len(shape) == 1
    of_vectors = {"name": "mlp", "hidden": [256, 128]}
    chosen = {
        "classification_average": "labeled",  # so that a few labels have enough weight in a batch
        "average_from": max(1, 3 * epochs // 4),
        "average_every": 1,
        "strong_network": of_vectors if on_vectors else {"name": "cnn13"},
    }
    weights = _SHORT_WEIGHTS_OF_VECTORS if on_vectors else _SHORT_WEIGHTS
    if name in weights:
        chosen["consistency_weight"] = weights[name]
    if name == "vat":
        chosen["epsilon"] = 8 * math.sqrt(math.prod(shape) / 3072)  # 8 for CIFAR-10
    known = list_settings(name)
    return {key: value for key, value in chosen.items() if key in known}


def _choose_method(name: str, epochs: int, shape: tuple[int, ...]) -> Table:
    own: Table = _DUAL_STUDENT if name == "dual-student" else {}
    if len(shape) == 1 and name == "fixmatch":
        own = {"pseudo_label_threshold": _HEAD_THRESHOLD}
    return {"name": name} | suit_method(name, epochs, shape) | own


def can_align(wanted: Table) -> bool:
    """Return whether the shares of the classes are of use: to FixMatch, if the user leaves it open.

    Args:
        wanted: the user's settings as a recipe table.
    """
    is_fixmatch = _look_up(wanted, "method", "name") in (None, _METHOD)
    off = _look_up(wanted, "method", "distribution_alignment") is False
    return is_fixmatch and not off and not _says_target(wanted)


def _says_target(wanted: Table) -> bool:
    return _look_up(wanted, "method", "alignment_target") is not None


def _choose_alignment(facts: ImageFacts, wanted: Table) -> Table:
    """Align what FixMatch predicts with the shares of the classes, where they are known."""
    if _find_method(facts, wanted) == _METHOD and _says_target(wanted):
        return {"distribution_alignment": True}
    if facts.shares is None or not can_align(wanted):
        return {}
    target = list(facts.shares) or "uniform"
    return {"distribution_alignment": True, "alignment_target": target}


def _explain_alignment(facts: ImageFacts, wanted: Table) -> dict[str, str]:
    if "alignment_target" not in _choose_alignment(facts, wanted):
        return {}
    why = "a quick classifier counts different numbers of them among the unlabeled images"
    if not facts.shares:
        why = "a quick classifier counts about equally many of them among the unlabeled images"
    return {"method.distribution_alignment": f"classes are predicted as often as they occur; {why}"}


def _find_network(chosen: Table, wanted: Table) -> str:
    """Return the name of the network that the user set, or else of the chosen one."""
    return str(_look_up(wanted, "network", "name") or chosen["name"])


def _choose_steps(facts: ImageFacts) -> int:
    if facts.on_features:
        return _HEAD_STEPS
    if facts.tuned:
        return _TUNING_STEPS_ON_GPU if facts.gpu else _TUNING_STEPS
    if facts.gpu is None and facts.channels == 1 and facts.size < _LARGE:
        return _GRAY_STEPS if facts.unlabeled >= _MANY_UNLABELED else _STEPS
    return _STEPS_ON_CUDA if facts.gpu == "cuda" else _STEPS


def _choose_optimizer(
    facts: ImageFacts, method: str, network: str, shape: tuple[int, ...]
) -> Table:
    chosen = {"weight_decay": 5e-4, "decay_norms_and_biases": False}
    if facts.tuned:
        return chosen | _TUNING | ({} if facts.gpu else {"trained_blocks": _TUNED_BLOCKS})
    return {"learning_rate": _choose_learning_rate(shape, method, network)} | chosen


def _explain_tuning(facts: ImageFacts) -> dict[str, str]:
    if not facts.tuned:
        return {}
    reasons = {
        "network.batch_norm": "few images would make poor statistics; those of the pretraining "
        "are kept",
        "optimizer.trunk_scale": "the trunk is trained before, the heads are new",
        "optimizer.layer_decay": "the first blocks see edges and colors, which all photos share",
    }
    blocks = "of the trunk, the last ones: most weights in a fraction of the time"
    return reasons | ({} if facts.gpu else {"optimizer.trained_blocks": blocks})


def _choose_learning_rate(shape: tuple[int, ...], method: str, network: str) -> float:
    if len(shape) == 1:  # a step changes an answer by the squared length of the vector
        return _HEAD_LEARNING_RATE * 1280 / shape[0]
    if method == "dual-student":
        return _LEARNING_RATE
    return LEARNING_RATES.get(network, _LEARNING_RATE)


def _choose_device(facts: ImageFacts, network: str) -> Table:
    """Choose the precision; the error of the whitened CNN is the same with both."""
    on_a_cpu = facts.gpu is None and network == "whitened-cnn" and has_fast_bfloat16()
    tuned = facts.gpu == "cuda" and facts.tuned is not None  # needs half as much memory
    return {"precision": "bf16-mixed"} if on_a_cpu or tuned else {}


def _make_schedule(epochs: int, warmup: float, wanted: Table) -> Table:
    schedule = {"epochs": epochs, "rampup_epochs": epochs / 4}  # for methods that have a ramp
    if _look_up(wanted, "schedule", "warmup_epochs") == 0:
        return schedule  # a recipe without warm-up does not say where it starts
    return schedule | {"warmup_epochs": min(warmup, epochs / 4), "warmup_from": 0.0}


def _look_up(wanted: Table, section: str, key: str) -> Any:
    """Return a setting of the user; None if there is none, or if the section is invalid."""
    table = wanted.get(section)
    return table.get(key) if isinstance(table, dict) else None


def has_batch_norm(network: Table) -> bool:
    """Whether a network normalizes batches: all do, except an MLP that was told otherwise."""
    return network.get("norm", "batch") == "batch" and network.get("hidden") not in ([], ())


def _choose_batch_norm(facts: ImageFacts, network: Table) -> Table:
    """Normalize source and target apart on features, where that was measured."""
    apart = facts.adapts and facts.on_features and has_batch_norm(network)
    return {"batch_norm": "by-domain"} if apart else {}


def _choose_network(facts: ImageFacts) -> tuple[Table, str]:
    if facts.on_features:
        layers = {"hidden": _ADAPTING_HIDDEN} if facts.adapts else {}
        why = "with a layer that both domains share" if facts.adapts else "without hidden layers"
        return HEADS | layers, f"learns from the features of the trunk, {why}"
    if facts.tuned:
        return {
            "name": facts.tuned,
            "batch_norm": "frozen",
        }, "has seen many photos before; fine-tuned"
    if facts.gpu == "cuda" and facts.channels == 3:
        if facts.size >= _PHOTO:
            return {"name": "resnext50"}, f"for photos of {_PHOTO} pixels or more, on a GPU"
        return {"name": "cnn13"}, "the paper's network for small images, on a GPU"
    halvings = max(1, (facts.size - 1).bit_length() - 1)  # as often as the map can be halved
    blocks = min(3 if facts.size < _LARGE else 4, halvings)
    first = 16 if facts.channels == 1 or blocks == 4 else 32
    widths = [first * 2**block for block in range(blocks)]
    chosen = {"widths": widths, "mirror_at_test": facts.may_be_mirrored}
    return {"name": "whitened-cnn"} | chosen, "learns fastest on a CPU"


def _choose_views(facts: ImageFacts, method: str) -> tuple[Table, dict[str, str]]:
    """Choose weak and strong views, with reasons."""
    flip = facts.may_be_mirrored
    weak: Table = {"translate": max(1, facts.size // 14), "flip": flip}
    strong: Table = {"flip": flip, "affine": _AFFINE, "cutout": _CUTOUT}
    if facts.channels in (1, 3):  # its operations are for gray or colors
        strong["randaugment"] = _RANDAUGMENT
    reasons = {
        "transforms.weak.translate": "weak views are shifted by up to a fourteenth of the image",
        "transforms.weak.flip": "mirror images look like their class"
        if flip
        else "mirror images may be of another class, as those of digits are",
    }
    if facts.channels == 3 and not (facts.on_features or facts.tuned):  # these know colors
        if facts.color_matters and not facts.adapts:
            why = "colors are kept, as they alone tell the classes of the labeled images apart"
        else:
            weak["jitter"] = _ANY_COLOR
            why = (
                "any saturation and hue, as few labels would teach the colors that these images "
                "happen to have; where classes differ by color, set [0, 0, 0, 0]"
            )
        reasons["transforms.weak.jitter"] = why
    if uses_strong_views(method):
        reasons["transforms.strong.randaugment"] = (
            "strong views are also changed by so many random operations, turned, scaled and "
            "sheared a little, and lack a part"
        )
    else:
        weak["affine"] = _GENTLE_AFFINE
        reasons["transforms.weak.affine"] = (
            f"{method} learns from weak views, so these are also turned, scaled and sheared"
        )
    return {"weak": weak, "strong": strong}, reasons


def _choose_batch(facts: ImageFacts, wanted: Mapping[str, int]) -> dict[str, int]:
    """Choose the composition of a batch: its size, and how many of it have a label."""
    if not facts.unlabeled:
        default = max(2, min(LABELED + UNLABELED, facts.labeled))
        size = wanted.get("size", wanted.get("labeled", default))
        return {"size": size, "labeled": size}
    share = wanted.get("size", LABELED + UNLABELED) * LABELED // (LABELED + UNLABELED)
    known = wanted.get("labeled", max(1, min(LABELED, share, facts.labeled)))
    size = wanted.get("size", known + min(UNLABELED, facts.unlabeled))
    return {"size": size, "labeled": known}


def _explain_labeled(each: int, labels: int) -> str:
    every = f"all {labels:,} labels to train with, in every batch"
    return every if each == labels else f"of {labels:,} labels to train with"


def _explain_batch(batch: Mapping[str, int], unlabeled: int) -> str:
    if not unlabeled:
        return "there are no unlabeled images"
    rest = batch["size"] - batch["labeled"]
    return f"the other {rest} are {'all' if rest == unlabeled else 'of'} {unlabeled:,} unlabeled"


def _list_keys(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from _list_keys(value, f"{prefix}{key}.")
