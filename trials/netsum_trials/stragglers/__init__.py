"""Stragglers, measured.

``make stragglers`` (pattern, training, worker, trial, run, report) trains a model with a worker that sleeps at random, in jobs
that wait and in jobs that degrade. ``make detection`` (detection, detection_report) times how long a block of a
straggler stays open, against ``block_exp``.
"""
