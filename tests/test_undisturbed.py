"""A user's module, and torch, while orfit calls them: put back is what was disturbed, no more."""

import copy
import threading

import numpy as np
import pytest

import orfit

torch = pytest.importorskip("torch")
from torch import nn
from torch._functorch import eager_transforms

from orfit.models.undisturbed import evaluated, undisturbed
from orfit.networks.features import Frozen


def fails(*_):
    raise ValueError("of its own")


def test_an_exception_that_is_being_handled_is_not_this_ones():
    for earlier in (KeyboardInterrupt, SystemExit, GeneratorExit):
        try:
            raise earlier
        except earlier:
            with pytest.raises(ValueError, match="of its own"):
                undisturbed(nn.Linear(2, 1), fails)


def test_exceptions_in_a_circle():
    one, other = ValueError("one"), ValueError("other")

    def circle():
        one.__context__, other.__context__ = other, one
        raise one

    with pytest.raises(ValueError, match="one"):
        undisturbed(nn.Linear(2, 1), circle)


def test_what_stopped_it_keeps_its_cause():
    def stops():
        raise SystemExit(1) from ValueError("why")

    with pytest.raises(SystemExit) as caught:
        undisturbed(nn.Linear(2, 1), stops)
    assert isinstance(caught.value.__cause__, ValueError)


def test_everything_is_put_back_after_a_signal():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    own = dict(module.named_parameters())

    def stops():
        module[0].weight = nn.Parameter(torch.zeros(2, 2))
        module[1].register_forward_hook(fails)
        module[1].eval()
        torch.set_grad_enabled(False)
        eager_transforms.enter_jvp_nesting()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        undisturbed(module, stops)
    assert all(parameter is own[name] for name, parameter in module.named_parameters())
    assert not module[1]._forward_hooks
    assert module[1].training
    assert torch.is_grad_enabled()
    assert eager_transforms.JVP_NESTING == 0
    torch.rand(1)  # which is refused inside a transform


class Changing(nn.Module):
    """A module that changes itself when it is called."""

    def __init__(self):
        super().__init__()
        self.w, self.hooked, self.ran = nn.Parameter(torch.zeros(1)), False, 0

    def forward(self, X):
        if not self.hooked:
            self.register_forward_hook(self.count)
            self.hooked = True
        self.w = nn.Parameter(self.w + 1)
        return X + self.w

    def count(self, *_):
        self.ran += 1


def test_what_a_module_does_to_itself_stays():
    module = Changing()
    Frozen(module, None, 2).of(torch.zeros(10, 3))
    assert (module.w.item(), module.ran) == (5.0, 4)  # the first call was under way


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traced_modules():
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    X = torch.randn(4, 3)
    traced = nn.Sequential(torch.jit.trace(module, X))
    np.testing.assert_allclose(Frozen(traced, None, 2).of(X), module(X).detach(), atol=1e-6)


def test_a_loader_that_goes_on_training_the_network():
    """Gradients are those in eval mode, whatever the loader does; and it finds its own mode."""
    torch.manual_seed(0)
    X, y = torch.randn(12, 5), torch.arange(12) % 3
    modes = []

    def batches(network, trains):
        for start in range(0, 12, 4):
            modes.append(network.training)
            network.train(trains)
            yield X[start : start + 4], y[start : start + 4]

    stds = []
    for trains in (True, False):
        torch.manual_seed(1)
        network = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.9), nn.Tanh(), nn.Linear(8, 3))
        learner = orfit.PerLayer(network.train(), noise=1.0)
        learner.remember(batches(network, trains))
        assert network.training is trains
        stds.append(learner.predict(X, std=True)[1])
    assert modes[:3] == [True] * 3
    np.testing.assert_array_equal(*stds)


@pytest.mark.parametrize("shared", [False, True])
def test_learners_in_several_threads(shared):
    """What torch keeps for the whole process is left to whoever uses it; one module goes round."""
    X, made, failures = np.ones((2, 3)), [], []
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)).double().eval()
    for tangent in (True, False):
        module = module if shared else copy.deepcopy(module)
        made.append(orfit.ORFit(orfit.TorchModel(module, tangent=tangent), 4, noise=0.1))
    for learner in made:
        learner.model.module.train()  # which dropout would show
        learner.learn(X[0], 1.0)
    expected = [learner.predict(X) for learner in made]
    own = [dict(learner.model.module.named_parameters()) for learner in made]

    def predicting(learner, wanted):
        try:
            for _ in range(150):
                np.testing.assert_array_equal(learner.predict(X), wanted)
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=predicting, args=both) for both in zip(made, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for learner, parameters in zip(made, own, strict=True):
        for name, parameter in learner.model.module.named_parameters():
            assert parameter is parameters[name]
        assert all(part.training for part in learner.model.module.modules())
    assert eager_transforms.JVP_NESTING == 0
    np.testing.assert_array_equal(made[0].predict(X), expected[0])


def test_a_module_is_looked_at_when_nobody_else_calls_it():
    """What is put back after a signal is the module's own, not what another call gave it."""
    module = nn.Linear(2, 1).eval()
    inside, go_on, found = threading.Event(), threading.Event(), []

    def slow(_):
        module.training = True  # as it may be in the midst of a call
        inside.set()
        go_on.wait(10)
        module.training = False

    def stops():
        raise KeyboardInterrupt

    def second():
        try:
            evaluated(module, stops)
        except KeyboardInterrupt:
            found.append(module.training)

    threads = [threading.Thread(target=evaluated, args=(module, slow, None))]
    threads.append(threading.Thread(target=second))
    threads[0].start()
    inside.wait(10)
    threads[1].start()
    threads[1].join(0.2)  # it waits for the first
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert found == [False]
