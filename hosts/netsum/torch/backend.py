"""The backend's name in torch: ``import torch`` calls :func:`register` (entry point group ``torch.backends``)."""

from __future__ import annotations

from typing import Any, Final

NAME: Final = "netsum"


def register() -> None:
    """Make ``init_process_group("netsum")`` work. The process group's own modules are loaded by the first one."""
    from torch import distributed  # noqa: PLC0415  torch is being imported when it calls this

    if distributed.is_available():
        distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, own: Any) -> Any:
    from netsum.torch.opening import open_group  # noqa: PLC0415

    return open_group(options, own)
