"""Dual Student as a scikit-learn estimator."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.utils.data import Dataset

from dualstudent.data.arrays import (
    LabelsLike,
    arrays_from_dataset,
    encode_labels,
    is_unknown,
    make_samples,
    prepare_arrays,
)
from dualstudent.data.features import FeaturePerturbation, Standardization
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples, Samples
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.discovery import allow_imports, find_imports
from dualstudent.errors import UserError
from dualstudent.estimator.recipe import build_recipe
from dualstudent.networks.build import AnyNetworkSettings, build_network
from dualstudent.prediction import Prediction
from dualstudent.progress import ProgressBar
from dualstudent.recipes.schema import Recipe
from dualstudent.stability import is_stable
from dualstudent.training.budget import Budget, fit_epochs, measure_for_budget
from dualstudent.training.callbacks import Callback
from dualstudent.training.checks import warn_of_unreachable_thresholds
from dualstudent.training.inference import run_inference
from dualstudent.training.trainer import Trainer
from dualstudent.training.trunk import TrunkNotes, describe_trunk, rebuild_trunk, use_trunk
from dualstudent.trunks.samples import ComputedFeatures
from dualstudent.trunks.trunk import StandardizedTrunk, TrunkSettings

_MOST_LABELS = 1000  # that progress is measured on
_FEATURE_NOISE = 0.5

Auto = Literal["auto"]


class DualStudentClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns from a few labels and many samples without one.

    Follows scikit-learn's conventions, and those of its ``SelfTrainingClassifier`` for samples
    without a label: they are marked by −1.

    Args:
        method: any name that ``dualstudent methods`` lists, or the import path of a method of your
            own; ``"auto"`` takes Dual Student for feature vectors and FixMatch for images. Methods
            with strong views need images.
        network: ``"auto"`` takes ``"mlp"`` for feature vectors, and for images the network that
            ``dualstudent train --data`` would take: ``"whitened-cnn"`` on a CPU. A network of your
            own is named by its import path, such as ``"my_package.nets:Tiny"``.
        epochs: passes over all samples; ``"auto"`` takes 100 for feature vectors, and for images
            about 3,000 steps on a CPU (6,000 for small gray ones, of which 2,000 or more have no
            label) and 20,000 on a GPU.
        batch_size: samples per step; less if there are fewer samples.
        labeled_batch: labeled samples per step.
        learning_rate: the largest; it falls to 0 along a half cosine. ``"auto"`` takes 0.1 for
            feature vectors, and what suits method and network for images.
        weight_decay: ``"auto"`` takes 1e-4 on every parameter for feature vectors, and 5e-4 for
            images. For these, biases and batch norm are never decayed.
        noise: σ of the Gaussian noise that perturbs a view: in standard deviations of each
            feature (``"auto"``: 0.5), or on pixels that range from −1 to 1 (``"auto"``: none).
        feature_dropout: share of the features that are replaced by their mean in a view.
        translate: largest shift of a weak view of an image, in pixels; ``"auto"`` takes a
            fourteenth of its shorter side.
        flip: whether views of images are mirrored at random; ``"auto"`` mirrors them if the labels
            show that mirror images look like their class, see
            :func:`~dualstudent.is_mirroring_harmless`.
        method_settings: name → value for any setting of the method, as ``dualstudent methods
            NAME`` lists them.
        network_settings: name → value for any setting of the network, such as
            ``{"hidden": [64], "dropout": 0.5}`` for an MLP.
        random_state: an int makes results repeatable.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        verbose: 0 is silent, 1 shows a bar, also in a notebook, 2 prints one line per epoch. They
            tell how many of the given labels the network meets; its accuracy on other samples is
            not known while it learns.
        pretrained: for images, a network that was trained on ImageNet and stays as it is:
            ``"efficientnet-lite0"``, or a mapping of its ``name`` and other settings of the section
            ``trunk`` of a recipe. The students learn from its features, which are computed once
            and kept in the cache folder. None trains on the images.
        budget: seconds that ``fit`` may take. Before the first step, a few are measured, and as
            many epochs as fit take the place of ``epochs``; ``n_iter_`` tells how many these were,
            to repeat a training elsewhere. None trains for ``epochs``.

    Attributes:
        classes_: (C,), the labels in order.
        n_features_in_: number of features; of images, scikit-learn counts their rows.
        feature_names_in_: if ``X`` had names.
        transduction_: (N,), for each training sample its label: as given, else as predicted.
        stable_: (N,) bool, whether each training sample is stable (Eq. 3 of the paper) for the
            network that predicts: its prediction is the same for the clean sample and for one
            perturbed view, and confident for either.
        history_: a dictionary per epoch: learning rate, ramp, and mean loss terms by student.
        n_iter_: epochs.
        recipe_: all settings of the training, by section, with those that were chosen.

    Example:
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> few = np.full_like(y, -1)
        >>> few[::10] = y[::10]  # 15 labels, 135 samples without one
        >>> classifier = DualStudentClassifier(random_state=0).fit(X, few)
        >>> bool(classifier.score(X, y) > 0.6)  # 0.87 to 0.90 with four seeds; chance is 0.33
        True
    """

    _trunk_notes: dict[str, Any] | None = None
    _trunk: StandardizedTrunk | None = None

    def __init__(
        self,
        method: str = "auto",
        network: str = "auto",
        epochs: int | Auto = "auto",
        batch_size: int = 128,
        labeled_batch: int = 32,
        learning_rate: float | Auto = "auto",
        weight_decay: float | Auto = "auto",
        noise: float | Auto = "auto",
        feature_dropout: float = 0.2,
        translate: int | Auto = "auto",
        flip: bool | Auto = "auto",
        method_settings: Mapping[str, Any] | None = None,
        network_settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 0,
        pretrained: str | Mapping[str, Any] | None = None,
        budget: float | None = None,
    ) -> None:
        self.method = method
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.labeled_batch = labeled_batch
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.noise = noise
        self.feature_dropout = feature_dropout
        self.translate = translate
        self.flip = flip
        self.method_settings = method_settings
        self.network_settings = network_settings
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.pretrained = pretrained
        self.budget = budget

    def fit(
        self,
        X: ArrayLike | Dataset[Any],
        y: LabelsLike | None = None,
        sample_domain: ArrayLike | None = None,
    ) -> Self:
        """Learn from samples with and without a label.

        Args:
            X: (N, features), images (N, H, W) or (N, H, W, channels) as bytes or as floats in
                [0, 1]; or a PyTorch dataset of (sample, label) pairs, without ``y``.
            y: (N,), labels of any kind; −1 (or None, NaN) where unknown.
            sample_domain: (N,), to adapt to another domain: positive for samples of the source,
                negative for those of the target, as in skada. Predictions are then for samples of
                the target. ``y`` may have labels of both; the target needs none.
        """
        started = time.monotonic()
        _check_types(self.get_params(deep=False))
        if isinstance(X, Dataset):
            X, y = arrays_from_dataset(X)
        if y is None:
            raise UserError(
                "DualStudentClassifier requires y to be passed, but the target y is None"
            )
        samples = validate_data(self, X, allow_nd=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(samples, y)
        self.classes_, codes = encode_labels(y)
        perturbation = self._build_perturbation(samples.ndim)
        data = prepare_arrays(samples, y, perturbation=perturbation, sample_domain=sample_domain)
        seed = int(check_random_state(self.random_state).randint(2**31))
        recipe = build_recipe(self.get_params(deep=False), data, seed)
        if self.budget is not None:
            recipe = self._fit_into(Budget(self.budget, started), recipe, data)
        trainer = Trainer(recipe, _add_views(data, recipe))
        warn_of_unreachable_thresholds(recipe, len(self.classes_))
        self.recipe_ = recipe.model_dump(mode="json", exclude={"data"}, exclude_none=True)
        self.history_ = self._train(trainer)
        self.n_iter_ = len(self.history_)
        self._keep_network(trainer)
        self._predict_training_samples(trainer, codes.numpy())
        return self

    def predict_proba(self, X: ArrayLike | Dataset[Any]) -> NDArray[np.float64]:
        """(N, C), the probability of each class in the order of ``classes_``."""
        check_is_fitted(self)
        samples = self._make_samples(X)
        found = self._infer(samples, torch.arange(len(samples)), None)
        return torch.cat([clean for clean, _ in found]).numpy()

    def predict(self, X: ArrayLike | Dataset[Any]) -> NDArray[Any]:
        """(N,), the most probable label of each sample."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[most_probable]
        return labels

    def score(
        self,
        X: ArrayLike | Dataset[Any],
        y: LabelsLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Accuracy on the samples whose label is known, so that cross-validation works with −1."""
        if isinstance(X, Dataset):
            X, y = arrays_from_dataset(X)
        known = ~is_unknown(np.asarray(y))
        if not known.any():
            raise UserError("y: all labels are unknown; score needs at least one known label")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        right = self.predict(X)[known] == np.asarray(y)[known]
        return float(np.average(right, weights=weights))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The state with the weights as bytes, so that no network has to be unpickled."""
        state = dict(super().__getstate__())
        if "_network" in state:
            weights = self._network.state_dict()
            state["_network"] = save_tensors({name: w.contiguous() for name, w in weights.items()})
        state.pop("_trunk", None)  # it is built again from its published weights
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_network" in state:
            network = self._build_network()
            network.load_state_dict(load_tensors(state["_network"]))
            self._network, self._trunk = network, self._build_trunk()

    def _build_perturbation(self, dimensions: int) -> FeaturePerturbation | None:
        """What perturbs feature vectors; None for images."""
        if dimensions > 2:
            return None
        noise = _FEATURE_NOISE if self.noise == "auto" else self.noise
        try:
            return FeaturePerturbation(noise=noise, dropout=self.feature_dropout)
        except ValidationError as error:
            problem = error.errors()[0]
            raise UserError(
                f"{problem['loc'][0]} = {problem['input']!r}: {problem['msg']}"
            ) from error

    def _fit_into(self, budget: Budget, recipe: Recipe, data: PreparedData) -> Recipe:
        """The recipe with as many epochs as can be trained within the budget."""
        prepared = use_trunk(recipe, _add_views(data, recipe))  # features take time, and are kept
        forecast = measure_for_budget(recipe, prepared)
        epochs = fit_epochs(recipe, forecast, budget.left)
        if recipe.trunk is not None:  # heads on features are done by then
            epochs = min(epochs, recipe.epochs)
        return build_recipe(self.get_params(deep=False) | {"epochs": epochs}, data, recipe.seed)

    def _train(self, trainer: Trainer) -> list[dict[str, Any]]:
        history = []
        progress = ProgressBar(type(self).__name__) if self.verbose == 1 else Callback()
        progress.on_start(0, trainer.total_steps)
        try:
            while not trainer.done:
                record = trainer.advance()
                if record is not None:
                    history.append(record)
                    if self.verbose:
                        self._tell(trainer, record, progress)
                progress.on_step(trainer.state.step)
        finally:
            progress.on_end(None)
        return history

    def _tell(self, trainer: Trainer, record: dict[str, Any], progress: Callback) -> None:
        """Show the progress: what is known of the accuracy, that on the labels."""
        met = _measure_labels_met(trainer)
        progress.on_epoch(record | {"labels_met": met})
        if self.verbose > 1:
            total = sum(sum(terms.values()) for terms in record["loss"]) / len(record["loss"])
            done = f"epoch {record['epoch']} of {trainer.recipe.epochs}"
            print(f"{done}: loss {total:.4f}, {met:.0%} of the labels met")

    def _keep_network(self, trainer: Trainer) -> None:
        """Keep what predictions need, without the data."""
        recipe, method, data = trainer.recipe, trainer.method, trainer.data
        network = method.evaluated[method.exported].requires_grad_(False)
        # A network that is not a student is an average of the first one.
        number = next((i for i, each in enumerate(method.students) if each is network), 0)
        settings = recipe.method.networks(recipe.network)[number]
        self._architecture = settings.model_dump(mode="json")
        self._sample_shape = data.train.shape
        self._preprocessing = {
            name: tensor.numpy() for name, tensor in data.train.preprocessing().items()
        }
        self._network = _set_precision(network, data.train.shape)
        notes = describe_trunk(data.train)
        self._trunk_notes = None if notes is None else notes.model_dump()
        self._trunk = self._build_trunk()

    def _predict_training_samples(self, trainer: Trainer, codes: NDArray[np.int64]) -> None:
        """Set ``stable_`` and ``transduction_``."""
        seed, threshold = trainer.recipe.seed, trainer.method.confidence_threshold
        samples = trainer.data.train
        parts = _split_by_domain(trainer, torch.arange(len(samples)))
        found = [
            views
            for of_source, part in parts
            for views in self._infer(samples, part, seed, of_source)
        ]
        order = torch.cat([part for _, part in parts]).argsort()
        clean, perturbed = (torch.cat(views)[order] for views in zip(*found, strict=True))
        self.stable_ = is_stable(clean, perturbed, threshold).numpy()
        predicted = clean.argmax(dim=1).numpy()
        self.transduction_ = self.classes_[np.where(codes < 0, predicted, codes)]

    def _infer(
        self, samples: Samples, indices: Tensor, seed: int | None, of_source: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Probabilities of clean samples and, with a seed, of a perturbed view; on the CPU."""
        device = next(self._network.parameters()).device
        networks = {"": self._network}
        for outputs in run_inference(networks, samples, indices, seed, device, of_source):
            yield _probabilities(outputs.clean), _probabilities(outputs.perturbed)

    def _build_network(self) -> nn.Module:
        """An untrained network of the kept architecture."""
        channels, *size = self._sample_shape
        allowed = allow_imports(find_imports({"network": self._architecture}))
        settings = TypeAdapter(AnyNetworkSettings).validate_python(
            self._architecture, context=allowed
        )
        image_size = min(size) if size else None
        built = build_network(settings, channels, len(self.classes_), image_size, 0, 0)
        return _set_precision(built.requires_grad_(False), self._sample_shape)

    def _build_trunk(self) -> StandardizedTrunk | None:
        if self._trunk_notes is None:
            return None
        settings = TrunkSettings.model_validate(self.recipe_["trunk"])
        notes, scale = TrunkNotes(**self._trunk_notes), Standardization(**self._preprocessing)
        return rebuild_trunk(settings, notes, scale, type(self).__name__)

    def _make_samples(self, X: ArrayLike | Dataset[Any]) -> Samples:
        """New samples; their shape must be that of the samples in :meth:`fit`."""
        if isinstance(X, Dataset):
            X, _ = arrays_from_dataset(X)
        array = validate_data(self, X, reset=False, allow_nd=True)
        scale = Standardization(**self._preprocessing) if self._preprocessing else None
        normalization = Normalization.model_validate(self.recipe_["normalization"])
        samples = make_samples(array, normalization=normalization, standardization=scale)
        expected = self._trunk_notes["images"] if self._trunk_notes else self._sample_shape
        if samples.shape != expected:
            raise UserError(
                f"X has samples of shape {samples.shape}; DualStudentClassifier was fitted with "
                f"{expected}"
            )
        return samples if self._trunk is None else ComputedFeatures(samples, self._trunk)


def _add_views(data: PreparedData, recipe: Recipe) -> PreparedData:
    """The same data with the views of images that the recipe was found to need."""
    if not isinstance(data.train, ImageSamples):
        return data
    views = (recipe.transforms, recipe.normalization)
    return replace(data, train=ImageSamples(data.train.pixels, *views))


def _measure_labels_met(trainer: Trainer) -> float:
    """Return the share of the given labels that the network predicts; of many, of some."""
    data, method = trainer.data, trainer.method
    labeled = data.labeled[:: math.ceil(len(data.labeled) / _MOST_LABELS)]
    network, device = {"": method.evaluated[method.exported]}, trainer.fabric.device
    right = [
        (chunk.clean[""].class_logits.argmax(dim=1).cpu() == data.labels[chunk.indices]).float()
        for of_source, part in _split_by_domain(trainer, labeled)
        for chunk in run_inference(network, data.train, part, None, device, of_source)
    ]
    return float(torch.cat(right).mean())


def _split_by_domain(trainer: Trainer, indices: Tensor) -> list[tuple[bool, Tensor]]:
    """Split samples by whether batch norm by domain is to take them for samples of the source."""
    is_target = trainer.data.is_target
    if is_target is None or trainer.recipe.network.batch_norm != "by-domain":
        return [(False, indices)]
    return [(False, indices[is_target[indices]]), (True, indices[~is_target[indices]])]


def _check_types(parameters: Mapping[str, Any]) -> None:
    """Check the types of parameters that are computed with; recipes check their ranges."""
    kinds: dict[str, tuple[type, str]] = {
        **dict.fromkeys(("method", "network", "device"), (str, "a name")),
        **dict.fromkeys(("batch_size", "labeled_batch"), (Integral, "a whole number")),
        "epochs": (Integral, "a whole number or 'auto'"),
        **dict.fromkeys(("learning_rate", "weight_decay"), (Real, "a number or 'auto'")),
        "verbose": (Integral, "0, 1 or 2"),
        "method_settings": (Mapping, "a dictionary or None"),
        "network_settings": (Mapping, "a dictionary or None"),
        "budget": (Real, "a number of seconds or None"),
    }
    for name, (kind, expected) in kinds.items():
        value = parameters[name]
        optional = expected.endswith("None") and value is None
        automatic = expected.endswith("'auto'") and isinstance(value, str) and value == "auto"
        if not (isinstance(value, kind) or optional or automatic):
            raise UserError(f"{name} = {value!r}: must be {expected}")
    budget = parameters["budget"]
    if budget is None:
        return
    if isinstance(budget, bool) or not 0 < budget < math.inf:
        raise UserError(f"budget = {budget!r}: must be a number of seconds above 0")
    if parameters["epochs"] != "auto":
        raise UserError("budget finds the number of epochs; leave epochs = 'auto', or budget out")


def _set_precision(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Move networks of feature vectors to the CPU, in double precision; leave others as they are.

    In single precision, rounding makes a prediction depend on the other samples of its batch,
    which scikit-learn does not accept. Networks of vectors are small enough for double precision.
    """
    return network.cpu().double() if len(shape) == 1 else network


def _probabilities(outputs: Mapping[str, Prediction]) -> Tensor:
    """(n, C) float64 on the CPU, of the only network; empty without outputs."""
    if not outputs:
        return torch.empty(0)
    return outputs[""].class_logits.cpu().double().softmax(dim=1)
