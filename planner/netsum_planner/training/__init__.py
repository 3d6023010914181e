# SPDX-License-Identifier: MIT
"""Predicts a training step: compute, communication by bucket, input, and how they overlap.

job is the training, machine what its computers can do; timeline puts a step together with simulated calls, and advice says what
bounds it and what would change that. The parts are those of Alibaba-PAI's model (Wang et al., Characterizing Deep Learning
Training Workloads on Alibaba-PAI, IISWC 2019): a step is input, compute and the traffic of weights, each by its own rate.
"""
