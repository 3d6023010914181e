# SPDX-License-Identifier: MIT
"""A Ray cluster of two nodes on this machine, on which an example is run: `ray_nodes.py EXAMPLE`."""

import os
import runpy
import sys

import ray
from ray.cluster_utils import Cluster

OBJECTS = 100 << 20  # bytes; Ray would take a third of the machine's memory
PATIENCE = 600  # seconds; Ray's own is for machines that start a process faster
os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(PATIENCE)
cluster = Cluster()
for rank in ("1", "0"):  # Ray's order of the nodes is its own
    node = {"num_cpus": 1, "object_store_memory": OBJECTS, "env_vars": {"NETSUM_RANK": rank}}
    cluster.add_node(wait=False, **node, include_dashboard=False)
try:
    cluster.wait_for_nodes(PATIENCE)
    os.environ["RAY_ADDRESS"] = cluster.address
    runpy.run_path(sys.argv[1], run_name="__main__")
finally:
    ray.shutdown()
    cluster.shutdown()
