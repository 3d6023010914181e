# SPDX-License-Identifier: MIT
"""The memory check in one process: pure devices, pure clients and the controller's decisions, on a clock of their own."""
