# SPDX-License-Identifier: MIT
"""The controller's state: jobs and epochs, in a file that one command at a time may change."""
