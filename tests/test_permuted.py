"""Tasks one after another: permuted and rotated MNIST, by networks with a memory for each layer."""

import numpy as np
import pytest
from scipy import ndimage

torch = pytest.importorskip("torch")
pytest.importorskip("rich", reason="experiments need the extra `experiments`")
from orfit.experiments import cnn, permuted, rotated20, tasks


@pytest.fixture(scope="module")
def quick():
    settings = permuted.Settings(**permuted.QUICK)
    ticked = []
    return settings, permuted.run(settings, lambda: ticked.append(1)), ticked


def test_every_task_is_measured_after_every_task(quick):
    settings, curves, ticked = quick
    assert len(ticked) == permuted.ticks(settings)
    for method in permuted.ENTRIES:
        accuracy = curves.facts[method]
        assert accuracy.shape == (1, settings.tasks, settings.tasks)
        assert ((accuracy >= 0) & (accuracy <= 1)).all()


def test_a_memory_for_each_layer_knows_more_in_the_end(quick):
    _, curves, _ = quick
    known = {method: curves.facts[method][0, -1].mean() for method in permuted.ENTRIES}
    assert known["layers"] > known["sgd"] + 0.05
    assert known["layers"] > known["layers-few"]
    assert known["orfit"] > known["ogd"]


def test_each_task_shows_the_same_images_in_another_order():
    settings = permuted.Settings(**permuted.QUICK)
    shown = permuted.Permuted(settings)
    stages = tasks.stages(shown, settings, permuted.ENTRIES["layers"])
    assert [set(of_task) for of_task, _ in stages] == [{0}, {1}, {2}]
    for of_task, rows in stages:
        assert len(set(rows)) == settings.rows, "each image is seen once"
        X, classes = next(shown.blocks(of_task, rows, 7))
        plain = (torch.tensor(shown.images[rows[:7]]) / 255 - 0.1307) / 0.3081
        assert torch.allclose(X.sort(dim=1).values, plain.sort(dim=1).values)
        assert (X != plain).any()
        assert (classes.numpy() == shown.labels[rows[:7]]).all()


def test_mixed_tasks_show_each_image_as_its_own_task_does():
    settings = permuted.Settings(**permuted.QUICK)
    shown = permuted.Permuted(settings)
    of_task, rows = tasks.stages(shown, settings, permuted.ENTRIES["sgd-mixed"])[0]
    assert set(of_task) == {0, 1, 2}
    X, classes = next(shown.blocks(of_task, rows, 9))
    expected = {
        (shown.labels[row], shown.show(shown.images[[row]], task).numpy().tobytes())
        for task, row in zip(of_task[:9], rows[:9], strict=True)
    }
    assert {(int(c), x.numpy().tobytes()) for x, c in zip(X, classes, strict=True)} == expected


def test_images_that_settings_are_chosen_by_are_training_images():
    settings = permuted.Settings(**permuted.QUICK | {"held_out": 100})
    apart, usual = permuted.Permuted(settings), permuted.Permuted(permuted.Settings(bundled=True))
    training = {image.tobytes() for image in usual.images}
    assert len(apart.images) == 1400
    assert {image.tobytes() for image in apart.test_images} <= training
    assert not {image.tobytes() for image in apart.test_images} & {
        image.tobytes() for image in apart.images
    }


def test_an_image_turned_by_a_matrix_is_an_image_turned():
    shown = rotated20.Rotated(rotated20.Settings(**rotated20.QUICK))
    angle = np.random.default_rng(0).uniform(0, 180, 4)[2]
    image = shown.images[5].reshape(28, 28)
    expected = ndimage.rotate(image.astype(float), angle, reshape=False, order=1)
    turned = shown.turn(shown.images[5:6], 2).reshape(28, 28)
    assert np.abs(turned - expected).max() <= 0.5 + 1e-3, "but for the rounding to bytes"


def test_a_second_angle_leaves_more_of_the_first_than_sgd_does():
    settings = cnn.Settings(**cnn.QUICK)
    entries = {name: cnn.ENTRIES[name] for name in ("sgd", "layers")}
    made = tasks.run_all(entries, settings, rotated20.Rotated, cnn.learner, lambda: None)
    known = {name: made.facts[name][0, -1].mean() for name in entries}
    assert known["layers"] > known["sgd"]


def test_statistics_of_batch_norm_are_those_of_the_first_images_and_stay():
    settings = cnn.Settings(**cnn.QUICK)
    shown = rotated20.Rotated(settings)
    learner = cnn.learner("layers", settings, shown)
    norm = learner.learner.network[2]
    before = norm.running_mean.clone()
    first = learner.learner.network[:2](shown.show(shown.images[: settings.settling], 0))
    assert torch.allclose(before, first.mean(dim=(0, 2, 3)), atol=1e-5)
    for X, classes in shown.blocks(np.zeros(40, int), np.arange(40), 20):
        learner.learn(X, classes)
    assert (norm.running_mean == before).all()
