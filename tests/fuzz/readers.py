"""Every reader of foreign data, with small good files to begin from."""

import bz2
import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow
import torch
from PIL import Image
from pyarrow import parquet
from safetensors.torch import save

from dualstudent import Run, UserError, load_recipe, sealed
from dualstudent.data import splits
from dualstudent.data.datasets import Images
from dualstudent.data.images import decoding, tables
from dualstudent.data.sources import cifar, matlab, mnist, svhn, usps
from dualstudent.data.sources.bundled import load_digits_8x8
from dualstudent.experiments import reading as experiments
from dualstudent.export import formats
from dualstudent.export.model import ModelCard, describe_preprocessing
from dualstudent.networks import weights
from dualstudent.networks.digits_cnn import DigitsCNN, DigitsCNNSettings
from dualstudent.recipes import reading
from dualstudent.recipes.files import read_recipe_source
from dualstudent.teach import app, exchange, guard, journal, session
from dualstudent.teach import labels as label_rows
from dualstudent.training import checkpoint, records, run
from tests.fuzz.teaching import read_journal, read_requests, seed_journals, seed_requests
from tests.support.made_runs import line, made_run, network
from tests.support.published_formats import NAMES10, idx, mat, name_lines, svmlight_line


@dataclass(frozen=True)
class Reader:
    """A reader of files that may come from a stranger.

    Attributes:
        name: the format.
        seeds: contents of good files, or nearly.
        read: reads a content, with a folder to put it into; raises UserError if it is refused.
        modules: what reads it, whose lines are counted.
        pack: puts a mutated content into its archive, so that not only the archive is mutated.
        share: of the inputs that others get, as it is slower.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes, Path], object]
    modules: Sequence[ModuleType]
    pack: Callable[[bytes], bytes] = bytes
    share: float = 1.0


def _write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _read_as(*reads: Callable[[], object]) -> None:
    """Read a file as each of these; it is refused if it is none of them."""
    refused = []
    for read in reads:
        try:
            read()
        except UserError as error:
            refused.append(error)
    if len(refused) == len(reads):
        raise refused[0]


def _read_idx(content: bytes, folder: Path) -> None:
    path = _write(folder, "digits.gz", content)
    _read_as(*(partial(mnist.read_idx, path, dimensions) for dimensions in (1, 3)))


def _read_usps(content: bytes, folder: Path) -> None:
    _write(folder, "usps/usps.bz2", content)
    usps.load_usps("train", folder)


@cache
def _seed_cifar() -> list[bytes]:
    record = bytes([3]) + bytes(range(256)) * 12
    return [record, record * 2, record[:-1]]


def _pack_cifar(records: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (
            ("test_batch.bin", records),
            ("batches.meta.txt", name_lines(NAMES10)),
        ):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _read_cifar(content: bytes, folder: Path) -> None:
    _write(folder, "cifar10/cifar-10-binary.tar.gz", content)
    cifar.load_cifar10("test", folder)


@cache
def _seed_mat() -> list[bytes]:
    pixels, labels = np.zeros((32, 32, 3, 2), np.uint8), np.ones((2, 1), np.uint8)
    return [mat(compressed, X=pixels, y=labels) for compressed in (True, False)]


def _read_mat(content: bytes, folder: Path) -> None:
    _write(folder, "svhn/test_32x32.mat", content)
    svhn.load_svhn("test", folder)


@cache
def _seed_images() -> list[bytes]:
    photo = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    gray, seeds = Image.fromarray(photo[..., 0]), []
    for image, kind, options in (
        (Image.fromarray(photo), "JPEG", {"exif": _turned()}),
        (Image.fromarray(photo), "PNG", {}),
        (Image.fromarray(photo), "WEBP", {}),
        (Image.fromarray(photo), "BMP", {}),
        (Image.fromarray(photo), "TIFF", {"compression": "tiff_lzw"}),
        (gray.convert("I;16"), "TIFF", {}),
        (gray.convert("F"), "TIFF", {}),
        (gray.convert("P"), "GIF", {}),
        (gray.convert("1"), "PNG", {}),
        (Image.fromarray(photo).convert("RGBA"), "PNG", {}),
    ):
        file = io.BytesIO()
        image.save(file, kind, **options)
        seeds.append(file.getvalue())
    return seeds


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def _read_image(content: bytes, folder: Path) -> None:
    _read_as(partial(decoding.read_header, content), partial(decoding.decode, content))


@cache
def _seed_csv() -> list[bytes]:
    return [
        b"path,label,part\na.png,cat,train\nb.png,dog,\nc.png,,\n",
        b'file;class\n"a.png";"\'=1+1"\nb.png;-1\n',
        "\ufeffimage\tlabel\na.png\tä\n".encode(),
    ]


@cache
def _seed_parquet() -> list[bytes]:
    seeds = []
    for labels in (["cat", "dog", None], [1.0, 2.0, float("nan")], [1, 2, 3]):
        file = io.BytesIO()
        parquet.write_table(
            pyarrow.table({"path": ["a.png", "b.png", "c.png"], "label": labels}), file
        )
        seeds.append(file.getvalue())
    return seeds


def _read_table(name: str, content: bytes, folder: Path) -> None:
    for image in ("a.png", "b.png", "c.png"):
        (folder / image).touch()
    tables.list_table(_write(folder, name, content))


def _read_toml(content: bytes, folder: Path) -> None:
    load_recipe(_write(folder, "recipe.toml", content))


def _seed_experiments() -> list[bytes]:
    return [
        (resources.files("dualstudent.experiments") / f"{name}.toml").read_bytes()
        for name in ("table4", "coupling")
    ]


def _read_experiment(content: bytes, folder: Path) -> None:
    experiments.load_experiment(_write(folder, "experiment.toml", content))


def _seed_sets() -> list[bytes]:
    return [
        *(b"seed=1", b"data.labels=50%", b"method.name=mean-teacher", b"network.width=2"),
        *(b"transforms.weak.affine=[15, 0.1, 0.15, 0.05]", b"stages=[{name = 'a', epochs = 1}]"),
    ]


def _read_set(content: bytes, folder: Path) -> None:
    load_recipe("digits", [content.decode(errors="surrogateescape")])


@cache
def _make_json_run(folder: Path) -> Run:
    epochs = [line(n, {"student1": network(50.0), "student2": network(40.0)}) for n in (1, 2)]
    return made_run(folder / "run", epochs)


@cache
def _seed_json() -> list[bytes]:
    manifest = {"data": _load_digits().name, "labeled": [0, 1, 2], "per_class": {"0": 1}}
    result = {
        "error": 40.0,
        "headline": ["student1"],
        "epochs": 2,
        "seconds": 1.0,
        "versions": {},
        "networks": {"student1": network(40.0)},
        "chosen_on_test": {"error": 40.0},
    }
    return [
        json.dumps(each).encode()
        for each in (
            {"format": 4, "digests": {}, "versions": {"torch": "2"}, "data": {}},
            result,
            line(1, {"student1": network(50.0)}),
            manifest,
        )
    ]


def _read_json(content: bytes, folder: Path) -> None:
    """As every JSON file of a run; sealed, too, as a stranger can."""
    made = _make_json_run(folder)
    _read_as(
        *(
            partial(_put_and_read, put, path, content, read)
            for path, read in (
                (made.about, lambda: Run.open(made.folder)),
                (made.result, made.read_result),
                (made.metrics, made.read_metrics),
                (made.split, lambda: splits.read_manifest(made.split, _load_digits())),
            )
            for put in (Path.write_bytes, _put_sealed)
        )
    )


def _put_and_read(
    put: Callable[[Path, bytes], object], path: Path, content: bytes, read: Callable[[], object]
) -> None:
    before = path.read_bytes() if path.exists() else b"{}"
    try:
        put(path, content)
        read()
    finally:
        path.write_bytes(before)


@cache
def _load_digits() -> Images:
    return load_digits_8x8("train")


def _put_sealed(path: Path, content: bytes) -> None:
    try:
        parsed = sealed.parse_object(content.decode(), path)
    except UnicodeDecodeError as error:
        raise UserError(str(error)) from error
    sealed.write_sealed(path, {key: value for key, value in parsed.items() if key != "sha256"})


@cache
def _seed_safetensors() -> list[bytes]:
    card = ModelCard(
        classes=tuple("0123456789"),
        channels=1,
        image_size=28,
        preprocessing=describe_preprocessing(1, 28),
        student="student1",
        test_error=1.0,
        network=DigitsCNNSettings(weight_norm=False),
        normalization={"mean": (0.5,), "std": (0.5,)},  # type: ignore[arg-type]
        recipe="",
        trained_with={},
        exported_with={},
    )
    state = DigitsCNN(weight_norm=False).state_dict()
    named = {f"network.{k}": v for k, v in state.items() if "follow" not in k}
    notes: dict[str, Any] = {"step": 1, "seconds": 1.0, "metrics_size": 0, "names": [[0, "loss"]]}
    return [
        # Without a digest, which would end the reading of most mutated files too early.
        save(named, {"dualstudent": json.dumps(card.model_dump(mode="json"))}),
        save({"sums": torch.ones(1, 1)}, {"dualstudent": json.dumps(notes)}),
        struct.pack("<Q", 2) + b"{}",
    ]


def _read_safetensors(content: bytes, folder: Path) -> None:
    path = _write(folder, "model.safetensors", content)
    _read_as(partial(checkpoint.read_checkpoint, path), partial(formats.load_exported, path))


@cache
def _seed_weights() -> list[bytes]:
    file = io.BytesIO()
    torch.save({"weight": torch.ones(2, 3), "bias": torch.ones(2, dtype=torch.float16)}, file)
    return [file.getvalue()]


def _read_weights(content: bytes, folder: Path) -> None:
    weights.read_weights(_write(folder, "weights.pt", content))


READERS = (
    Reader(
        "idx",
        lambda: [idx(np.zeros((2, 3, 3))), idx(np.arange(4))],
        _read_idx,
        [mnist],
        gzip.compress,
    ),
    Reader(
        "svmlight",
        lambda: [svmlight_line(label).encode() for label in (1, 10)],
        _read_usps,
        [usps],
        bz2.compress,
    ),
    Reader("cifar", _seed_cifar, _read_cifar, [cifar], _pack_cifar),
    Reader("mat", _seed_mat, _read_mat, [svhn, matlab]),
    Reader("image", _seed_images, _read_image, [decoding]),
    Reader(
        "csv", _seed_csv, lambda content, folder: _read_table("a.csv", content, folder), [tables]
    ),
    Reader(
        "parquet",
        _seed_parquet,
        lambda content, folder: _read_table("a.parquet", content, folder),
        [tables],
    ),
    Reader(
        "toml",
        lambda: [read_recipe_source(name).encode() for name in ("digits", "demo")],
        _read_toml,
        [reading],
    ),
    Reader("json", _seed_json, _read_json, [sealed, records, run], share=0.25),
    Reader("safetensors", _seed_safetensors, _read_safetensors, [checkpoint, formats]),
    Reader("weights", _seed_weights, _read_weights, [weights]),
    Reader("--set", _seed_sets, _read_set, [reading], share=0.25),
    Reader("experiment", _seed_experiments, _read_experiment, [experiments]),
    Reader("teach", seed_requests, read_requests, [app, exchange, guard, session], share=0.25),
    Reader("journal", seed_journals, read_journal, [journal, label_rows]),
)
