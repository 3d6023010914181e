# SPDX-License-Identifier: MIT
"""Stragglers, measured.

``make stragglers`` (training, worker, experiment, command) trains a model with a worker that sleeps at random, in jobs that
wait and in jobs that degrade. ``make detection`` (detection) times how long a block of a
straggler stays open, against ``block_exp``.
"""
