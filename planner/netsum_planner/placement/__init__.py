# SPDX-License-Identifier: MIT
"""Placement of trainings on hosts: racks, zones and buildings as nested scopes, the sizes of its parallelism, and the hosts.

scopes are where hosts are, jobs what is wanted, placement the hosts of one job, fit how a policy takes them; steps predicts a
step, search places several jobs, and takeover says who takes the place of a host that is lost.

Scopes, and a search among all that fits instead of the first, are those of Meta's MAST (Choudhury et al., OSDI 2024). That a
group must not leave its scope, and that the tightest scopes with enough room are taken, is topology-aware scheduling, as in
Kubernetes' Kueue.
"""
