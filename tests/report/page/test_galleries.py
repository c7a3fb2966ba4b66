from base64 import b64decode
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from dualstudent.report.page.galleries import Gallery, build_galleries, make_thumbnail
from tests.support.run_data import HOSTILE, data_of, said

CLASSES = ("cat\n", HOSTILE, "emu")
SHOWN = ("cat\\n", HOSTILE, "emu")


def decoded(source: str) -> np.ndarray:
    start = "data:image/webp;base64,"
    assert source.startswith(start)
    with Image.open(BytesIO(b64decode(source.removeprefix(start)))) as image:
        return np.asarray(image.convert("RGB"))


def made() -> tuple[list[Gallery], list[dict[str, Any]], torch.Tensor]:
    """The galleries, all facts sample by sample, and the pixels."""
    answers, truth = said(60, 3)
    kept = torch.arange(60) != 5  # one that could not be read: indices are not rows
    columns = (
        getattr(answers, name)[kept]
        for name in (
            "indices",
            "probabilities",
            "stable",
            "stable_for_all",
            "agree",
            "labels",
            "instability",
        )
    )
    answers = type(answers)(*columns)
    data = replace(
        data_of(truth, CLASSES), test_files=tuple(Path(f"/far/away/{i}.png") for i in range(60))
    )
    facts = [
        {
            "place": place,
            "truth": int(truth[place]),
            "labels": labels.tolist(),
            "confidence": float(p.max()),
            "stable": bool(stable),
            "moved": float(moved),
        }
        for place, p, stable, labels, moved in zip(
            answers.indices.tolist(),
            answers.probabilities.double(),
            answers.stable,
            answers.labels,
            answers.instability,
            strict=True,
        )
    ]
    found = build_galleries(answers, answers.add_truth(truth), data, ["one", "two"], size=6)
    assert found is not None
    pixels = data.test.read_pixels(torch.arange(60))
    assert pixels is not None
    return found, facts, pixels


def test_galleries_hold_the_first_of_those_they_are_about() -> None:
    (mistakes, disagreed, shaken), facts, pixels = made()
    for gallery, among, order in (
        (mistakes, lambda f: f["labels"][0] != f["truth"], "confidence"),
        (disagreed, lambda f: f["labels"][0] != f["labels"][1], "confidence"),
        (shaken, lambda f: not f["stable"], "moved"),
    ):
        expected = sorted(filter(among, facts), key=lambda f: -f[order])
        assert gallery.count == len(expected)
        assert len(gallery.pictures) == 6
        for picture, fact in zip(gallery.pictures, expected, strict=False):
            assert picture.truth == SHOWN[fact["truth"]]
            assert picture.predicted == tuple(SHOWN[label] for label in fact["labels"])
            assert picture.confidence == fact["confidence"]
            assert picture.correct == (fact["labels"][0] == fact["truth"])
            assert picture.file == f"away/{fact['place']}.png"
            image = pixels[fact["place"]].permute(1, 2, 0).numpy()
            assert np.array_equal(decoded(picture.source), image)


def test_nobody_disagrees_with_a_single_network() -> None:
    answers, truth = said(20, 3)
    found = build_galleries(
        answers, answers.add_truth(truth), data_of(truth, CLASSES), ["one"], size=6
    )
    assert found is not None
    assert [gallery.key for gallery in found] == ["mistakes", "unstable"]


def test_large_images_become_small() -> None:
    draw = torch.Generator().manual_seed(0)
    photo = torch.randint(256, (3, 300, 200), generator=draw).to(torch.uint8)
    assert decoded(make_thumbnail(photo)).shape == (96, 64, 3)
    gray = torch.randint(256, (1, 9, 9), generator=draw).to(torch.uint8)
    assert np.array_equal(decoded(make_thumbnail(gray))[..., 0], gray[0].numpy())
