"""A user's module, and torch, as they were, where the handler of a signal raises.

On Ctrl-C torch itself may leave a module with the parameters of a call, stay inside a transform or
without gradients, leave a transform later, when a frame is collected, or raise something else in
its place. Of what is no such exception nothing here takes notice: it is torch's own affair.
"""

import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C import _functorch
from torch._functorch import eager_transforms
from torch.autograd import forward_ad

T = TypeVar("T")

HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


# Who has a module to himself, for others would find the parameters and the mode of his call.
locks: "weakref.WeakKeyDictionary[nn.Module, Any]" = weakref.WeakKeyDictionary()
if hasattr(os, "register_at_fork"):  # of all threads only one is in the child: nobody holds a lock
    os.register_at_fork(after_in_child=locks.clear)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in eval mode, for one thread at a time, and afterwards as it was."""
    with alone(module):
        training = [part for part in module.modules() if part.training]
        try:
            for part in training:
                part.training = False
            yield
        finally:
            for part in training:
                part.training = True


def alone(module: nn.Module) -> Any:
    """The lock of who calls this module."""
    lock = locks.get(module)
    return locks.setdefault(module, threading.RLock()) if lock is None else lock


def undisturbed(module: nn.Module, call: Callable[..., T], *args: Any) -> T:
    """What `call` returns, which uses the module."""
    return Before(module).put_back(call, *args)


def evaluated(module: nn.Module, call: Callable[..., T], *args: Any) -> T:
    """The same, with the module in eval mode, for one thread at a time."""
    with alone(module):  # before it is looked at: who calls it changes it
        before = Before(module)
        made: T = before.put_back(before.evaluating, call, *args)
        return made


class Before:
    """What a module, and torch, were."""

    def __init__(self, module: nn.Module) -> None:
        self.training = [(part, part.training) for part in module.modules()]
        parts = [part for part, _ in self.training if not isinstance(part, torch.jit.ScriptModule)]
        self.parameters = [(p._parameters, dict(p._parameters)) for p in parts if p._parameters]
        hooks = [getattr(part, name) for part in parts for name in HOOKS]
        self.hooks = [(of_one, set(of_one)) for of_one in hooks]
        self.gradients = torch.is_grad_enabled()
        self.depth = _functorch.get_dynamic_layer_stack_depth()
        self.forward, self.level = eager_transforms.JVP_NESTING, forward_ad._current_level

    def evaluating(self, call: Callable[..., T], *args: Any) -> T:
        """What `call` returns, with the module in eval mode."""
        training = [part for part, mode in self.training if mode]
        try:
            for part in training:
                part.training = False
            return call(*args)
        finally:
            for part in training:
                part.training = True

    def put_back(self, call: Callable[..., T], *args: Any) -> T:
        """What `call` returns; after the exception of a signal's handler all is as it was."""
        outside = sys.exception()
        try:
            return call(*args)
        except BaseException as error:
            chain = list(_chain(error, outside))
            came = next((one for one in chain if not isinstance(one, Exception)), None)
            if came is None:
                raise
            for one in chain:
                traceback.clear_frames(one.__traceback__)
            while True:
                try:
                    self.restore()
                    break
                except Exception:
                    raise
                except BaseException:  # another signal: all of it again
                    continue
            raise came from came.__cause__

    def restore(self) -> None:
        """Put everything back; where it is cut short, it can be done again."""
        for part, mode in self.training:
            if part.training is not mode:
                part.training = mode
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


def _chain(error: BaseException, outside: BaseException | None) -> Iterator[BaseException]:
    """The exception, and those that it came in the midst of, but not what was there before."""
    now: BaseException | None = error
    known: set[int] = set()
    while now is not None and now is not outside and id(now) not in known:
        known.add(id(now))
        yield now
        now = now.__context__
