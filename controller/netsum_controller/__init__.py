# SPDX-License-Identifier: MIT
"""netsum's control plane: fills the P4 switches' tables so that jobs can sum their gradients there.

Start at :class:`~netsum_controller.controller.Controller`; on the command line it is ``netsum``.
"""

from __future__ import annotations

from netsum_controller.config.job_spec import JobSpec, load_job
from netsum_controller.config.topology import Topology, load_topology
from netsum_controller.controller import Controller
from netsum_controller.errors import ControllerError
from netsum_controller.state.model import Job

__all__ = ["Controller", "ControllerError", "Job", "JobSpec", "Topology", "load_job", "load_topology"]
