# SPDX-License-Identifier: MIT
"""The error that ends a device."""

from __future__ import annotations


class DeviceError(Exception):
    """The device cannot start or continue; the text says why and what to do."""
