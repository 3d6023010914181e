"""What ends a device."""

from __future__ import annotations


class DeviceError(Exception):
    """The device cannot go on, or not begin; the text says why and what to do."""
