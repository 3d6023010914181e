"""Who combines, a switch (:class:`Window`) or the members themselves (:class:`PeerWindow`), and the way from one to the other."""

from __future__ import annotations

from netsum.descriptor import Descriptor
from netsum.peers.window import PeerWindow
from netsum.window import Window

AnyWindow = Window | PeerWindow


def open_window(descriptor: Descriptor, join_deadline: float = 0.0) -> AnyWindow:
    """The window of an epoch. ``join_deadline``: see :class:`Window`."""
    return Window(descriptor, join_deadline) if descriptor.by_switch else PeerWindow(descriptor)


def go_on(window: AnyWindow, descriptor: Descriptor) -> AnyWindow | None:
    """The window of an epoch that resumes the one of ``window``, at its ``first_block_id``: what was submitted from there on is
    submitted to it. None: a contribution is not there any more."""
    if isinstance(window, Window) and descriptor.by_switch:
        return window if window.resume(descriptor.first_block_id, descriptor.roots) else None
    blocks = window.blocks_from(descriptor.first_block_id)
    if blocks is None:
        return None
    following = open_window(descriptor)
    following.stats = window.stats
    for block in blocks:
        following.submit(block)
    following.stats.resumes += 1
    return following
