"""The backend's name in torch: ``import torch`` calls :func:`register` (entry point group ``torch.backends``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

NAME: Final = "netsum"


def register() -> None:
    """Make ``init_process_group("netsum")`` work. The process group's own modules are loaded by the first one."""
    from torch import distributed  # noqa: PLC0415  torch is being imported when it calls this

    if distributed.is_available():
        distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        distributed.register_rendezvous_handler(NAME, _init_method)


def _create(options: Any, own: Any) -> Any:
    from netsum.torch.group_init import open_group  # noqa: PLC0415

    return open_group(options, own)


def _init_method(url: str, **options: Any) -> Iterator[Any]:
    from netsum.torch.rendezvous import init_method  # noqa: PLC0415

    return init_method(url, **options)
