# SPDX-License-Identifier: MIT
"""Links of a device: the kernel's UDP, or whole frames."""
