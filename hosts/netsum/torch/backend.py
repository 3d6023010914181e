# SPDX-License-Identifier: MIT
"""The backend's name in torch: ``import torch`` calls :func:`register` (entry point group ``torch.backends``)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any, Final

NAME: Final = "netsum"
REPLACEABLE: Final = ("gloo", "nccl")
"""Backends whose process groups may run on netsum (``NETSUM_AS``)."""


def register() -> None:
    """Make ``init_process_group("netsum")`` work, and other names that ``NETSUM_AS`` has. The process group's own modules are
    loaded by the first one. Raises ValueError if ``NETSUM_AS`` is wrong."""
    from torch import distributed  # noqa: PLC0415  torch is being imported when it calls this

    if distributed.is_available():
        distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        distributed.register_rendezvous_handler(NAME, _init_method)
        if names := replaced():
            _replace(names)


def replaced() -> tuple[str, ...]:
    """The backends that netsum replaces, by ``NETSUM_AS``. Raises ValueError."""
    text = os.environ.get("NETSUM_AS") or ""
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    if not set(names) <= set(REPLACEABLE):
        raise ValueError(f"NETSUM_AS is {text!r}, not {' or '.join(REPLACEABLE)}, or both with a comma")
    return names


def _replace(names: Collection[str]) -> None:
    """Have torch create netsum's process groups, for all devices, where a script names one of these backends. The groups keep
    that name (``get_backend()``), by which scripts and torch itself decide what they may do."""
    from torch.distributed.distributed_c10d import Backend, BackendConfig  # noqa: PLC0415

    named = BackendConfig.get_device_backend_map

    def get_device_backend_map(config: Any) -> dict[str, Any]:
        by_device: dict[str, Any] = named(config)
        return by_device if set(names).isdisjoint(by_device.values()) else dict.fromkeys(by_device, Backend(NAME))

    BackendConfig.get_device_backend_map = get_device_backend_map


def _create(options: Any, own: Any) -> Any:
    from netsum.torch.group_init import open_group  # noqa: PLC0415

    return open_group(options, own)


def _init_method(url: str, **options: Any) -> Iterator[Any]:
    from netsum.torch.rendezvous import init_method  # noqa: PLC0415

    return init_method(url, **options)
