"""A user's module in eval mode, and afterwards, whatever came, it and torch as they were.

Where the handler of a signal raises, as Ctrl-C does, torch itself may leave a module with the
parameters of a call, stay inside a transform or without gradients, leave a transform later, when a
frame is collected, or raise something else in its place.
"""

import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C import _functorch
from torch._functorch import eager_transforms
from torch.autograd import forward_ad

T = TypeVar("T")

HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


def undisturbed(module: nn.Module, call: Callable[..., T], *args: Any) -> T:
    """What `call` returns, while the module is in eval mode."""
    before, late = Before(module), None
    try:
        before.evaluate()
        return call(*args)
    except BaseException as error:
        came = next((e for e in _chain(error) if not isinstance(e, Exception)), None)
        if came is None:
            raise
        for one in _chain(error):
            traceback.clear_frames(one.__traceback__)
        raise came from None
    finally:
        while True:
            try:
                before.restore()
                break
            except Exception:
                raise
            except BaseException as error:  # another signal: all of it again
                late = error
        if late is not None:
            raise late


class Before:
    """What a module, and torch, were."""

    def __init__(self, module: nn.Module) -> None:
        parts = list(module.modules())
        self.training = [part for part in parts if part.training]
        self.parameters = [(p._parameters, dict(p._parameters)) for p in parts if p._parameters]
        hooks = [getattr(part, name) for part in parts for name in HOOKS]
        self.hooks = [(of_one, set(of_one)) for of_one in hooks]
        self.gradients = torch.is_grad_enabled()
        self.depth = _functorch.get_dynamic_layer_stack_depth()
        self.forward, self.level = eager_transforms.JVP_NESTING, forward_ad._current_level

    def evaluate(self) -> None:
        for part in self.training:
            part.training = False

    def restore(self) -> None:
        """Put everything back; where it is cut short, it can be done again."""
        for part in self.training:
            part.training = True
        for now, own in self.parameters:
            now.update(own)
        for present, wanted in self.hooks:
            for hook in present.keys() - wanted:
                del present[hook]
        torch.set_grad_enabled(self.gradients)
        eager_transforms.JVP_NESTING = self.forward
        if forward_ad._current_level > self.level:
            forward_ad.exit_dual_level()  # type: ignore[no-untyped-call]
        if _functorch.get_dynamic_layer_stack_depth() > self.depth:
            _functorch.pop_dynamic_layer_stack_and_undo_to_depth(self.depth)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it came in the midst of."""
    now: BaseException | None = error
    while now is not None:
        yield now
        now = now.__context__
