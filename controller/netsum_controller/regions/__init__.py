# SPDX-License-Identifier: MIT
"""The life of regions of memory: creating, describing, moving and deleting them, and keeping shards on devices that live."""
