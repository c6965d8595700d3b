"""A card that is none: some tensors count as its own, and what a real one would refuse is refused.

`Card` is a mode of torch. Inside, `CARD` is a device: what is moved there or made there with `device=CARD` is marked,
by its storage, and whatever is computed from marked tensors is marked too. An operation on a marked and an unmarked
tensor fails, unless one of them is a single number, as does a marked tensor that becomes numpy's. So code under test
that makes a tensor on the default device and lets it meet the weights fails as it would on a card, and everything is
computed by the processor: results must be those without a card, bit by bit.

Not shown by this: kernels that only a card has, its memory, its streams, torch.autocast for cards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CARD = torch.device("cpu", 1)
"""Of the processor's type, so that its kernels and its autocast are used; nothing else has this number."""

_ANYWHERE = ("copy_", "index", "index_put_", "_index_put_impl_")
"""Operations that read from elsewhere: a copy, and indices."""
_NUMBERS_TOO = ("_fused_adamw_",)
"""Operations that want single numbers on the card as well."""


class Mixed(AssertionError):
    """An operation on tensors of two devices."""


class Card:
    """The storages that are on the card."""

    def __init__(self) -> None:
        # note: kept, for the address of a freed one is given to another.
        self._own: dict[int, Any] = {}
        self.operations = 0
        """That touched the card."""

    def holds(self, tensor: Tensor) -> bool:
        """Is it on the card?"""
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage()._cdata in self._own

    def put(self, found: Any) -> Any:
        """Mark every tensor of `found`."""
        with torch._C.DisableTorchFunction():
            for tensor in _tensors(found):
                storage = tensor.untyped_storage()
                self._own[storage._cdata] = storage
        return found

    def place(self, tensor: Tensor, device: torch.device) -> Tensor:
        """`tensor` there: itself where it is there already, else a copy."""
        if self.holds(tensor) == (device == CARD):
            return tensor
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            moved = tensor.clone()
        return self.put(moved) if device == CARD else moved  # type: ignore[no-any-return]

    @contextmanager
    def __call__(self) -> Iterator[Card]:
        """Inside, on this thread, there is a card."""
        compared: Any = checkpoint._allowed_determinism_checks_to_fns
        # note: what a layer keeps is looked at from inside an operation, where the mode does not answer.
        before, compared["default"] = compared["default"], lambda tensor: (tensor.shape, tensor.dtype)
        try:
            with _Operations(self), _Calls(self):
                yield self
        finally:
            compared["default"] = before


class _Calls(TorchFunctionMode):
    """What Python asks: `device`, moves, and tensors made on a device."""

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card = card

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return CARD if self._card.holds(args[0]) else func(*args)
        if func in (torch.Tensor.numpy, torch.Tensor.__array__) and self._card.holds(args[0]):
            raise Mixed("a tensor on the card was made numpy's")
        if func is torch.Tensor.cpu:
            return self._card.place(args[0], torch.device("cpu"))
        if func is torch.Tensor.backward:
            # note: a mode is off while it answers, and what the backward pass calls is to be asked for, too.
            engine: Any = torch.autograd.Variable._execution_engine
            one = torch.ones_like(args[0])
            with self:
                engine.run_backward((args[0],), (one,), False, False, (), allow_unreachable=True, accumulate_grad=True)
            return None
        if func is torch.Tensor.to:
            return self._to(args[0], args[1:], named)
        # note: this one makes its result by the first tensor's device, which is the processor's after all.
        padded = func is torch._C._nn.pad_sequence and self._card.holds(args[0][0])
        if padded or named.get("device") == CARD:
            named.pop("device", None)
            return self._card.put(func(*args, **named))
        return func(*args, **named)

    def _to(self, tensor: Tensor, args: Sequence[Any], named: dict[str, Any]) -> Tensor:
        words = [*args, named.pop("device", None), named.pop("other", None)]
        rest = [word for word in args if not isinstance(word, torch.device | str | Tensor) and word is not None]
        named.pop("non_blocking", None)
        place = CARD if self._card.holds(tensor) else torch.device("cpu")
        for word in words:
            if isinstance(word, Tensor):
                place, rest = (CARD if self._card.holds(word) else torch.device("cpu")), [word.dtype]
            elif isinstance(word, torch.device | str):
                place = torch.device(word)
        made: Tensor = tensor.to(*[word for word in rest if not isinstance(word, bool)], **named)
        return self._card.place(made, place)


class _Operations(TorchDispatchMode):
    """Every operation, those of the backward pass too."""

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card = card

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        given = list(_tensors((args, named)))
        name = func.overloadpacket.__name__
        own = [tensor for tensor in given if self._card.holds(tensor)]
        others = [t for t in given if not self._card.holds(t) and (t.dim() > 0 or name in _NUMBERS_TOO)]
        if own and others and name not in _ANYWHERE:
            raise Mixed(f"{func} on tensors of the card and of the processor ({others[0].shape}, {others[0].dtype})")
        found = func(*args, **named)
        if own and name != "copy_":
            self._card.operations += 1
            self._card.put(found)
        return found


def _tensors(found: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor))
