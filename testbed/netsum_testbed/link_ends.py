"""Where the ends of a fabric's links are, and how any process opens a host's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netsum.descriptor import Descriptor, Link
from netsum.endpoint_factory import open_transport
from netsum.transports.base import Transport

from netsum_testbed.netns import call_inside


@dataclass(frozen=True)
class LinkEnd:
    """An interface, and the prefix of a command that makes it run in its namespace."""

    prefix: Sequence[str]
    interface: str


@dataclass(frozen=True)
class Opening:
    """How to open a host's transport from any process on this machine: in the namespace of a file, if given, and on an
    interface, if it replaces the descriptor's link."""

    namespace: str | None = None
    interface: str | None = None

    def open(self, descriptor: Descriptor) -> Transport:
        """The transport for an epoch's descriptor."""
        if self.interface is not None:
            descriptor = replace(descriptor, link=Link("packet", interface=self.interface))
        if self.namespace is None:
            return open_transport(descriptor)
        return call_inside(Path(self.namespace), lambda: open_transport(descriptor))
