# SPDX-License-Identifier: MIT
"""Steps of an optimizer at the memory, checked by what they must be whatever came first: a step is made of certain workers'
gradients, each once, whose sum is exact, since they are multiples of 1/4. In Python's numbers, with nothing of the devices'."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from math import inf
from typing import Any, Final, NamedTuple

from netsum.wire.memory import Instruction, LaneType

from tests.system.memory.linearizable import Call, linearizable
from tests.system.memory.model import Finding, HistoryEntry, MemoryRequest, Numbers, Refuted, pack, rounded, unpack

LEAVE: Final = 2**32 - 1
"""The step of an OPTIMIZE without payload that says: this worker pushes no more. Step 0 asks how many steps there were."""

_NAMES: Final = ("lr", "weight_decay")
_ANY: Final = -1
_NEVER: Final = -2


def settings_of(step: int) -> tuple[float, ...]:
    """Learning rate, and weight decay, of a step, or the region's; all workers must give the same."""
    return ((), (0.25,), (0.5, 0.125))[step % 3]


def is_push(request: MemoryRequest) -> bool:
    """True if it brings a gradient, and so may have to wait for others."""
    return request.instruction == Instruction.OPTIMIZE and bool(request.payload)


class _Moment(NamedTuple):
    """``made``: the step that is made here; 0: none. Then so many ``steps`` have been made, or any number, or the answer
    contradicts itself; and the bytes of the block from ``start`` on were ``found``."""

    made: int = 0
    steps: int = _ANY
    start: int = 0
    found: bytes = b""


class Steps:
    """One block of ``length`` bytes, which begins with zeros, in a region with these options."""

    def __init__(self, options: Mapping[str, Any], length: int) -> None:
        self._options, self._length = options, length

    def check_counts(self, entries: Sequence[HistoryEntry]) -> None:
        """Raise :class:`Refuted` unless each step is made of as many gradients as it says, and as it should be."""
        workers, quorum = int(self._options["workers"]), int(self._options["quorum"])
        needed = quorum or workers
        for step, pushes in _pushes(entries).items():
            known = [entry for entry in pushes if entry.answered != inf]
            if not known:
                continue
            came = {entry.request.worker for entry in pushes}
            over = min(entry.answered for entry in known)
            left = {each.request.worker for each in entries if each.request.step == LEAVE and each.invoked < over}
            least = min(needed, workers - len(left - came))
            for entry in known:
                counted = _counted(entry)
                right = len(known) <= counted <= len(pushes) == len(came) and least <= counted <= needed
                if not right or entry.argument >> 32 != step:
                    raise Refuted(Finding.WRONG, entry)

    def explained(self, entries: Sequence[HistoryEntry]) -> bool:
        """True if some order of these, and some choice among the pushes of unknown outcome, explains all answers."""
        last = max((entry.argument >> 32 for entry in entries if entry.answered != inf), default=0)
        found = _pushes(entries)
        choices = [_choices(found.get(step, [])) for step in range(1, last + 1)]
        return any(self._explains(entries, chosen) for chosen in product(*choices))

    def _explains(self, entries: Sequence[HistoryEntry], chosen: Sequence[Sequence[HistoryEntry]]) -> bool:
        """``chosen``: for each step, the pushes that it is made of."""
        blocks = [pack(LaneType.FLOAT32, each) for each in self._blocks(chosen)]
        calls: list[Call[_Moment]] = []
        for step, pushes in enumerate(chosen, 1):
            if any(entry.answer not in (None, blocks[step]) for entry in pushes):
                return False
            invoked = max((entry.invoked for entry in pushes), default=0.0)
            calls.append(Call(_Moment(step), invoked, min((entry.answered for entry in pushes), default=inf)))
        calls += _looks(entries)

        def do(made: int, moment: _Moment) -> int | None:
            if moment.made:
                return moment.made if made == moment.made - 1 else None
            here = blocks[made][moment.start : moment.start + len(moment.found)]
            return made if here == moment.found and moment.steps in (_ANY, made) else None

        return linearizable(calls, 0, do)

    def _blocks(self, chosen: Sequence[Sequence[HistoryEntry]]) -> Iterable[Numbers]:
        """The block after 0, 1, ... steps."""
        lanes = self._length // LaneType.FLOAT32.bytes
        rule = _Rule(self._options, lanes)
        yield rule.numbers
        for step, pushes in enumerate(chosen, 1):
            given = [unpack(LaneType.FLOAT32, entry.request.payload) for entry in pushes]
            gradient = tuple(sum(column) for column in zip(*given, strict=True)) if given else (0.0,) * lanes
            if self._options["mean"]:
                counted = max([_counted(entry) for entry in pushes if entry.answered != inf], default=len(pushes) or 1)
                gradient = tuple(rounded(each / counted) for each in gradient)
            rule.step(gradient, step)
            yield rule.numbers


def _counted(entry: HistoryEntry) -> int:
    """Number of gradients that the step is made of, 0 if this one is not among them."""
    return entry.argument & 0xFFFFFFFF


def _pushes(entries: Sequence[HistoryEntry]) -> dict[int, list[HistoryEntry]]:
    """By step, the pushes that are in it, and those that may be."""
    found = defaultdict(list)
    for entry in entries:
        if is_push(entry.request) and (entry.answered == inf or _counted(entry)):
            found[entry.request.step].append(entry)
    return found


def _choices(pushes: Sequence[HistoryEntry]) -> list[Sequence[HistoryEntry]]:
    """Choices of what a step may be made of: all known pushes, what is supposed to have been done once more, and as many of those
    whose outcome is not known as are missing."""
    known = [entry for entry in pushes if entry.answered != inf]
    again = [each for each in pushes if each.answered == inf and any(each.request is entry.request for entry in known)]
    others = [each for each in pushes if each.answered == inf and each not in again]
    missing = max(0, _counted(known[0]) - len(known)) if known else len(others)
    return [(*known, *again, *some) for some in combinations(others, min(missing, len(others)))]


def _looks(entries: Sequence[HistoryEntry]) -> Iterable[Call[_Moment]]:
    """Instructions that only read the block: READs, progress queries, late pushes."""
    for entry in entries:
        request = entry.request
        if entry.answered == inf or (is_push(request) and _counted(entry)):
            continue
        answer, steps = entry.answer or b"", _ANY
        if request.instruction == Instruction.OPTIMIZE:
            steps = entry.argument >> 32
            if not is_push(request):
                answer, steps = b"", steps if answer == steps.to_bytes(8, "little") else _NEVER
        yield Call(_Moment(0, steps, request.start, answer), entry.invoked, entry.answered)


class _Rule:
    """SGD, Adam and AdamW, one number after the other."""

    def __init__(self, options: Mapping[str, Any], lanes: int) -> None:
        self._options = options
        self.numbers: Numbers = (0.0,) * lanes
        self._kept: list[tuple[float, float]] = [(0.0, 0.0)] * lanes

    def step(self, gradient: Numbers, step: int) -> None:
        given = dict(self._options) | dict(zip(_NAMES, settings_of(step), strict=False))
        rule = _sgd if given["optimizer"] == "sgd" else _adam
        made = [rule(given, *each, step) for each in zip(self.numbers, gradient, self._kept, strict=True)]
        self.numbers = tuple(number for number, _ in made)
        self._kept = [kept for _, kept in made]


_Made = tuple[float, tuple[float, float]]


def _sgd(given: Mapping[str, Any], number: float, gradient: float, kept: tuple[float, float], step: int) -> _Made:
    momentum, towards, buffer = rounded(given["momentum"]), gradient, kept[0]
    if given["weight_decay"]:
        towards = gradient = rounded(gradient + rounded(rounded(given["weight_decay"]) * number))
    if momentum:
        added = rounded(rounded(1 - given["dampening"]) * gradient)
        buffer = gradient if step == 1 else rounded(rounded(buffer * momentum) + added)
        towards = rounded(gradient + rounded(momentum * buffer)) if given["nesterov"] else buffer
    return rounded(number - rounded(rounded(given["lr"]) * towards)), (buffer, 0.0)


def _adam(given: Mapping[str, Any], number: float, gradient: float, kept: tuple[float, float], step: int) -> _Made:
    beta1, beta2, decay = given["beta1"], given["beta2"], given["weight_decay"]
    if given["optimizer"] == "adamw":
        number = rounded(number * rounded(1 - given["lr"] * decay))
    elif decay:
        gradient = rounded(gradient + rounded(rounded(decay) * number))
    first = rounded(rounded(kept[0] * rounded(beta1)) + rounded(rounded(1 - beta1) * gradient))
    share = rounded(rounded(rounded(1 - beta2) * gradient) * gradient)
    second = rounded(rounded(kept[1] * rounded(beta2)) + share)
    spread = rounded(rounded(math.sqrt(second)) / rounded(math.sqrt(1 - beta2**step)))
    spread = rounded(spread + rounded(given["eps"]))
    towards = rounded(rounded(rounded(given["lr"] / (1 - beta1**step)) * first) / spread)
    return rounded(number - towards), (first, second)
