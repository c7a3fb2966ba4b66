from collections.abc import Callable

import pytest
import torch

from dualstudent.data import samples as samples_module
from dualstudent.data.batching import readers
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.policy import Draw, Transform, Transforms, perturb

EVERYTHING = Transforms(weak=Transform(translate=2, flip=True, noise=0.1))
META = torch.device("meta")


def images(count: int = 40) -> ImageSamples:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return ImageSamples(pixels, EVERYTHING, Normalization())


def drawn(seed: int) -> Draw:
    return Draw("weak", torch.Generator().manual_seed(seed))


def test_views_are_of_the_samples_asked_for_in_that_order() -> None:
    samples, indices = images(), torch.tensor([39, 0, 7, 7])
    clean, view = samples.make_views(indices, [None, drawn(1)])
    chosen = torch.stack([samples.pixels[i] for i in (39, 0, 7, 7)])
    assert torch.equal(clean, normalize(chosen, Normalization()))
    assert torch.equal(view, perturb(chosen, EVERYTHING.weak, Normalization(), drawn(1).generator))
    assert not torch.equal(view[2], view[3])


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the free memory of the meta device in bytes."""

    def has(free: int) -> None:
        monkeypatch.setattr(
            samples_module, "get_free_memory", lambda device: free if device == META else None
        )

    return has


@pytest.mark.parametrize("surplus", [0, 1])
def test_images_stay_on_the_host_if_they_take_more_than_a_quarter_of_a_device(
    memory: Callable[[int], None], surplus: int
) -> None:
    samples = images()
    memory(4 * samples.pixels.nbytes - surplus)
    there = samples.to(META)
    assert there.pixels.device == (torch.device("cpu") if surplus else META)
    if surplus:
        assert there.pixels.data_ptr() == samples.pixels.data_ptr()  # and are no copy
    (clean,) = there.make_views(torch.tensor([3, 1]), [None])
    assert clean.device == META  # views are made there in either case
    assert clean.shape == (2, 3, 8, 8)


def test_on_a_cpu_nothing_is_copied() -> None:
    samples = images()
    assert samples.to("cpu").pixels.data_ptr() == samples.pixels.data_ptr()


def test_views_of_images_brought_over_batch_by_batch_are_the_same_bit_for_bit() -> None:
    class Elsewhere(torch.Tensor):
        """Pixels that claim to be on another device and count transfers."""

        moved = 0

        def to(self, *to: object, **kind: object) -> torch.Tensor:
            type(self).moved += 1
            return self.as_subclass(torch.Tensor).clone()

    samples, indices = images(), torch.tensor([5, 5, 31, 2])
    held = ImageSamples(
        samples.pixels.as_subclass(Elsewhere), EVERYTHING, Normalization(), torch.device("cpu")
    )
    for one, other in zip(
        samples.make_views(indices, [None, drawn(1), drawn(2)]),
        held.make_views(indices, [None, drawn(1), drawn(2)]),
        strict=True,
    ):
        assert torch.equal(one, other)
    assert Elsewhere.moved == 1  # once for all views


def test_indices_of_a_step_stay_where_the_samples_are(memory: Callable[[int], None]) -> None:
    samples = images()
    memory(0)
    labels = torch.tensor([0, 1] * 5 + [-1] * 30)
    data = PreparedData(
        ("a", "b"),
        ImageSamples(samples.pixels, Transforms(), Normalization()),
        labels,
        torch.arange(10),
        torch.arange(10, 40),
        samples,
        labels[:0],
    )
    looked: list[torch.device] = []
    views = ImageSamples.make_views

    def noting(self: ImageSamples, indices: torch.Tensor, draws: list[None]) -> object:
        looked.append(indices.device)
        return views(self, indices, draws)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageSamples, "make_views", noting)
        patch.setattr(
            readers, "make_generator", lambda *_, device: None
        )  # meta devices draw nothing
        batch = BatchLoader(data, BatchSettings(size=8, labeled=2), seed=0, device=META).batch(0)
    assert looked == [torch.device("cpu")]
    assert batch.views[0].device == batch.labels.device == batch.indices.device == META
