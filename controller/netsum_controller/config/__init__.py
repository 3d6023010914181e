# SPDX-License-Identifier: MIT
"""The two YAML files that users write: the topology and the job."""
