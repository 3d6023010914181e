# SPDX-License-Identifier: MIT
"""``make cluster-check``: ranks under torchrun on servers of an ordinary network, with an aggregator beside its switch."""
