# SPDX-License-Identifier: MIT
"""``make matrix``: random cells of collective x operation x type x ranks x size x loss x topology, each checked against numpy.

deal -> run -> report; cells are made and checked by :mod:`netsum_testbed.verify`.
"""
