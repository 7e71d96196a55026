"""Heads on frozen features: they are ridge regression on one-hot labels, with the plumbing done."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orfit


def classes_of_points(rng, n, classes=3, size=6):
    centres = np.eye(size)[:classes] * 3
    y = np.arange(n) % classes
    return centres[y] + rng.standard_normal((n, size)), y


@pytest.mark.parametrize("expand", [None, 20])
def test_heads_that_grew_are_ridge_regression_on_all_classes(expand, rng):
    X, y = classes_of_points(rng, 90)
    order = np.argsort(y, kind="stable")  # class after class
    heads = orfit.Heads(memory=None, noise=2.0, expand=expand)
    for block in np.array_split(order, 7):
        heads.learn(X[block], y[block])
    assert heads.classes == (0, 1, 2)
    omega = np.eye(6)
    if expand:
        omega = np.random.default_rng(0).standard_normal((6, 20), dtype=np.float32)
        omega = omega * np.float32(np.sqrt(2 / 20))
    phi = np.maximum(X @ omega, 0) if expand else X
    phi = np.column_stack([phi, np.ones(len(X))])
    w = np.linalg.solve(phi.T @ phi + 2 * np.eye(phi.shape[1]), phi.T @ np.eye(3)[y])
    assert heads.scores(X) == pytest.approx(phi @ w, abs=1e-9)
    assert (heads.predict(X) == (phi @ w).argmax(axis=1)).all()
    shares = heads.predict_proba(X)
    assert shares.min() >= 0
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (shares.argmax(axis=1) == heads.predict(X)).all()


def test_accuracy_is_counted_before_a_datapoint_is_learned(rng):
    X, y = classes_of_points(rng, 60)
    together, one_by_one, right = orfit.Heads(), orfit.Heads(), 0
    for x, label in zip(X, y, strict=True):
        if label in one_by_one.classes:
            right += one_by_one.predict(x) == label
        one_by_one.learn(x, int(label))
    together.learn(X[:1], y[:1])
    together.learn(X[1:], y[1:])
    assert one_by_one.accuracy == right / 60
    assert one_by_one.seen == together.seen == 60
    assert together.accuracy == pytest.approx(right / 60, abs=0.05)
    assert np.isnan(orfit.Heads().accuracy)


def calibration_error(likely, right, bins=10):
    """|confidence − accuracy|, in bins of confidence (Naeini, Cooper and Hauskrecht, 2015)."""
    bin_of = np.minimum((likely * bins).astype(int), bins - 1)
    gaps = [abs((likely - right)[bin_of == i].sum()) for i in range(bins)]
    return sum(gaps) / len(likely)


@pytest.mark.parametrize(
    ("by_class", "most", "memory", "expand"),
    [
        (True, 0.1, 50, None),
        pytest.param(False, 0.05, 50, None, marks=pytest.mark.slow),
        pytest.param(False, 0.05, 150, 500, marks=pytest.mark.slow),
        pytest.param(True, 0.1, 150, 500, marks=pytest.mark.slow),
    ],
)
def test_heads_are_as_sure_as_they_are_right(by_class, most, memory, expand):
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    X, y = digits.data[order], digits.target[order]
    first = np.argsort(y[:1200], kind="stable") if by_class else np.arange(1200)
    heads = orfit.Heads(memory=memory, expand=expand)
    for rows in np.array_split(first, 15):
        heads.learn(X[rows], y[rows])
    likely = heads.predict_proba(X[1200:])
    right = heads.predict(X[1200:]) == y[1200:]
    assert (np.array(heads.classes)[likely.argmax(axis=1)] == heads.predict(X[1200:])).all()
    assert calibration_error(likely.max(axis=1), right) < most
    scores = np.maximum(heads.scores(X[1200:]), 0)
    shares = scores / scores.sum(axis=1, keepdims=True)
    assert calibration_error(shares.max(axis=1), right) > 0.3, "as scores are, they are not"


def test_the_noise_follows_the_size_of_the_features(rng):
    X, y = classes_of_points(rng, 200)
    small, large = orfit.Heads(), orfit.Heads()
    for rows in (slice(0, 20), slice(20, 200)):
        small.learn(X[rows], y[rows])
        large.learn(1000 * X[rows], y[rows])
    assert small.noise == pytest.approx(np.square(X).sum(axis=1).mean())
    assert large.noise == pytest.approx(1e6 * small.noise)
    assert orfit.Heads(noise=3).learn(X, y) is not None
    later = orfit.Heads()
    later.learn(X[:150], y[:150])
    assert (large.predict(1000 * X) == small.predict(X)).mean() > 0.95


def test_labels_and_inputs_that_are_none(rng):
    X, y = classes_of_points(rng, 6)
    heads = orfit.Heads(memory=3)
    for wrong in (y + 0.5, np.eye(3)[y], [None] * 6):
        with pytest.raises(ValueError, match="y must"):
            heads.learn(X, wrong)
    with pytest.raises(ValueError, match="6 datapoints, but y has 5"):
        heads.learn(X, y[:5])
    with pytest.raises(ValueError, match="no class is known yet"):
        heads.predict(X)
    heads.learn(X, [f"class {label}" for label in y])
    assert heads.predict(X[0]) in heads.classes
    assert heads.predict(X).dtype.kind == "U"
    with pytest.raises(ValueError, match="there were 6 features; now there are 5"):
        heads.learn(X[:, :5], ["class 0"] * 6)
    for mixed in (y, [1, "class 0", 2, 3, 4, 5]):
        with pytest.raises(ValueError, match="not both"):
            heads.learn(X, mixed)
    assert len(heads.learn(X[:0], [])) == 0
    with pytest.raises(ValueError, match="below 2⁶³"):
        orfit.Heads(memory=3).learn(X[:2], [2**63, 2**63 + 1])
    with pytest.raises(ValueError, match="finite"):
        heads.learn(np.full((1, 6), np.nan), ["class 0"])
    for wrong in ({"noise": "some"}, {"noise": -1}, {"expand": 0}, {"layer": "fc"}, {"seed": -1}):
        with pytest.raises(ValueError):
            orfit.Heads(**wrong)
    with pytest.raises(ValueError, match="backbone must be"):
        orfit.Heads(7)


def test_a_row_that_is_too_large_leaves_the_noise_alone(rng):
    X, y = classes_of_points(rng, 6)
    heads = orfit.Heads(memory=3)
    heads.learn(X, y)
    noise = heads.noise
    with pytest.raises(ValueError, match="scale X"):
        heads.learn(np.full((1, 6), 1e200), [0])
    assert heads.noise == noise
    heads.learn(X, y)
    assert heads.seen == 12


@pytest.mark.parametrize("expand", [None, 30])
def test_saved_heads_go_on(expand, rng, tmp_path):
    X, y = classes_of_points(rng, 60)
    names = np.array(["ant", "bee", "cat"])[y]
    heads = orfit.Heads(memory=4, expand=expand)
    heads.learn(X[:30], np.where(names == "cat", "bee", names)[:30])
    heads.save(tmp_path / "heads")
    again = orfit.load(tmp_path / "heads")
    for each in (heads, again):
        each.learn(X[30:], names[30:])  # a new class, too
    assert (again.scores(X) == heads.scores(X)).all()
    assert again.classes == heads.classes
    assert (again.predict_proba(X) == heads.predict_proba(X)).all()
    assert (again.accuracy, again.seen, again.noise) == (heads.accuracy, 60, heads.noise)


def test_on_a_module_or_on_a_layer_of_it(rng, tmp_path):
    torch = pytest.importorskip("torch")
    from torch import nn

    def network(seed=0):
        torch.manual_seed(seed)
        parts = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)
        return nn.Sequential(*parts)

    X, y = classes_of_points(rng, 60)
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    heads = orfit.Heads(net, memory=5, layer="2", batch_size=7)
    heads.learn(torch.as_tensor(X), torch.as_tensor(y))
    assert net.training, "it is left in its mode"
    assert all((net.state_dict()[name] == value).all() for name, value in before.items())
    body = network()[:3].eval()
    with torch.no_grad():
        features = body(torch.as_tensor(X, dtype=torch.float32))
    plain = orfit.Heads(memory=5)
    plain.learn(features, y)
    assert plain.scores(features) == pytest.approx(heads.scores(X), rel=1e-4, abs=1e-5)
    heads.save(tmp_path / "heads")
    again = orfit.load(tmp_path / "heads", model=network())
    assert again._batch_size == 7, "of other batches a network may make other last digits"
    assert (again.scores(X) == heads.scores(X)).all()
    with pytest.raises(orfit.CheckpointError, match="other numbers"):
        orfit.load(tmp_path / "heads", model=network(1))
    with pytest.raises(ValueError, match="it has 0, 1, 2, 3, 4"):
        orfit.Heads(net, layer="fc")


def test_inputs_by_keyword(rng):
    torch = pytest.importorskip("torch")

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(9, 4)

        def forward(self, input_ids, attention_mask):
            hidden = self.table(input_ids) * attention_mask[..., None]
            return {"logits": hidden.mean(dim=1)}

    ids = torch.arange(24).reshape(8, 3) % 9
    heads = orfit.Heads(Words(), memory=4)
    batch = {"input_ids": ids, "attention_mask": torch.ones(8, 3)}
    heads.learn(batch, list("abababab"))
    assert heads.predict(batch).shape == (8,)


@pytest.mark.slow
@pytest.mark.parametrize(("script", "least"), [("heads", [0.8]), ("per_layer", [0.5, 0.8])])
def test_the_examples_run(script, least):
    if script == "per_layer":
        pytest.importorskip("torch")
    path = Path(__file__).parents[1] / "examples" / f"{script}.py"
    # Each by itself: the compiled loop gives torch's OpenMP as many threads as there are cores.
    printed = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
    told = re.findall(r"\d\.\d+", printed.stdout)
    assert len(told) == len(least)
    assert all(float(share) > bar for share, bar in zip(told, least, strict=True))
