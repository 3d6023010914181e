# SPDX-License-Identifier: MIT
"""The controller as an object, as the command line and the testbeds use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

from netsum.certificate_pin import pinned_url
from netsum.descriptor import Descriptor, MemberLink

from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Topology
from netsum_controller.context import ControllerContext
from netsum_controller.http.api import HttpServer
from netsum_controller.http.enrollment import Enroll
from netsum_controller.http.server import tls_context
from netsum_controller.jobs import eviction, groups, lifecycle, migration, reconcile
from netsum_controller.jobs.membership import Membership, describe
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.memory.devices import LEASE
from netsum_controller.memory.model import Region, RegionSpec
from netsum_controller.monitoring import job_status
from netsum_controller.monitoring.links import LinkWatcher
from netsum_controller.monitoring.metrics import Metrics
from netsum_controller.monitoring.path_monitor import PathMonitor
from netsum_controller.monitoring.scanner import AgingScanner
from netsum_controller.monitoring.switch_monitor import PERIOD, SwitchMonitor
from netsum_controller.p4runtime.client import CONNECT_TIMEOUT
from netsum_controller.p4runtime.p4info import CompiledProgram, netsum_program
from netsum_controller.planning.replan import Replan, installed_planner
from netsum_controller.regions import lifecycle as regions
from netsum_controller.regions.reconciler import RegionReconciler
from netsum_controller.state.model import Job
from netsum_controller.state.store import Store
from netsum_controller.web.live_page import EventStream


class Controller:
    """A topology, a state file, and the operations on them. Several threads may use it, and several processes the same state
    file. It connects to a switch only while it works on it.

    Every method may raise :class:`netsum_controller.errors.ControllerError`; then nothing has changed.
    """

    def __init__(
        self,
        topology: Topology,
        state_path: str | Path,
        *,
        program: CompiledProgram | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        replan: Replan | None = installed_planner,
    ) -> None:
        store = Store(state_path)
        self.context = ControllerContext(
            topology, store, program or netsum_program(), connect_timeout=connect_timeout, replan=replan
        )
        self.membership = Membership(self.context)
        self._serving: ExitStack | None = None

    @property
    def topology(self) -> Topology:
        """The topology; assign a filled one when a testbed has learned the addresses."""
        return self.context.topology

    @topology.setter
    def topology(self, topology: Topology) -> None:
        self.context.topology = topology

    @property
    def url(self) -> str | None:
        """The address of the HTTP endpoint, while it serves."""
        return self.context.url

    def push(self, *, force: bool = False, take_over: bool = False) -> list[reconcile.Report]:
        """Load the program on every switch that lacks it, and install everything that belongs there. ``take_over`` removes jobs
        that this state file does not know, which otherwise raise :class:`netsum_controller.errors.StateError`."""
        return list(reconcile.reconcile(self.context, force=force, take_over=take_over))

    def reconcile(self) -> list[reconcile.Report]:
        """Like :meth:`push`, after a switch has restarted: its jobs come back under a new epoch."""
        return list(reconcile.reconcile(self.context))

    def create_job(self, spec: JobSpec) -> Job:
        """Install a job. The same spec again returns the existing job; only a new one has its ``token``."""
        return lifecycle.create_job(self.context, spec)

    def delete_job(self, name: str, *, force: bool = False) -> Job:
        """Remove a job; with ``force``, even if its switch is gone."""
        return groups.delete_with_groups(self.context, name, force=force)

    def evict(self, name: str, rank: int) -> eviction.Eviction:
        """Take a rank out of a job; the others go on without it."""
        return eviction.evict(self.context, name, rank)

    def admit(self, name: str, rank: int) -> eviction.Eviction:
        """Let an evicted rank in again, under a new epoch for all."""
        return eviction.admit(self.context, name, rank)

    def move(self, name: str, algorithm: str) -> migration.Migration:
        """Change who combines in a job: a switch ("switch"), its members ("ring", ...), or a switch if possible ("auto")."""
        return migration.move(self.context, name, algorithm)

    def jobs(self) -> list[Job]:
        """The jobs that are ready, by name."""
        return [job for job in self.context.store.jobs() if job.exists]

    def job(self, name: str) -> Job:
        return self.context.store.job(name)

    def stats(self, name: str) -> job_status.JobStats:
        return job_status.stats(self.context, name)

    def diagnose(self, name: str, block: int | None = None) -> job_status.JobDiagnosis:
        return job_status.diagnose(self.context, name, block)

    def descriptor(self, name: str, rank: int, link: MemberLink | None = None) -> Descriptor:
        """Descriptor of a rank in the current epoch, without joining (see :meth:`join`)."""
        return describe(self.context, self.job(name), rank, link)

    def join(
        self,
        name: str,
        token: str,
        rank: int,
        instance: str,
        link: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        peer: str | None = None,
        host_id: str | None = None,
        group: str | None = None,
    ) -> Descriptor:
        """Take a rank, or with a ``progress`` rejoin, as ``POST /v1/jobs/NAME/join`` does."""
        return self.membership.join(name, token, rank, instance, link, progress, peer, host_id, group)

    def leave(self, name: str, token: str, rank: int, instance: str) -> bool:
        """Give a rank up, as ``POST /v1/jobs/NAME/leave`` does."""
        return self.membership.leave(name, token, rank, instance)

    def write_descriptors(self, name: str, folder: str | Path) -> list[Path]:
        """Descriptor files of every rank for one run, in a new epoch unless no member has joined the current one."""
        return self.membership.write_files(name, folder)

    def create_region(self, spec: RegionSpec, *, wait: float = regions.WAIT) -> Region:
        """Make a region of memory; returns when it can be used. Only a new one has its tokens. Some process must serve."""
        return regions.create_region(self.context, spec, wait=wait)

    def delete_region(self, name: str) -> Region:
        """Remove a region and what is in it."""
        return regions.delete_region(self.context, name)

    def move_region(
        self, name: str, to: Sequence[str], *, away_from: str | None = None, shards: Sequence[int] | None = None
    ) -> int:
        """Begin to move shards of a region to other devices; returns how many. :meth:`moving` says how many still do."""
        return regions.move_region(self.context, name, to, away_from=away_from, shards=shards)

    def moving(self, name: str) -> int:
        """The number of shards of a region that are on their way to other devices."""
        return regions.moving(self.context, name)

    @property
    def device_token(self) -> str:
        """The credential that memory devices show to the controller."""
        return regions.device_token(self.context)

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertise: str | None = None,
        watch: float | None = PERIOD,
        tls: tuple[str | Path, str | Path] | None = None,
        pin: str | None = None,
        metrics_token: str | None = None,
        web: bool = False,
        lease: float = LEASE,
        enroll: Enroll | None = None,
        join_token: str | None = None,
    ) -> str:
        """Start the HTTP endpoint in threads of its own; returns its URL (port 0: a free port). Members are told ``advertise``, a
        host name or address, instead of ``host``. Every ``watch`` seconds (None: never) each switch is checked, and reconciled
        if it has restarted; jobs leave a switch that is dead, or that UDP does not reach. With ``tls``, PEM files of a
        certificate and its key, it serves HTTPS. ``pin`` is that certificate's digest if members are to trust it alone; then the
        URL ends with it (:mod:`netsum.certificate_pin`).
        ``enroll`` and ``join_token`` are those of :class:`netsum_controller.http.api.HttpServer`. ``GET /metrics``
        requires the ``metrics_token``, if given, and so does what the live page shows, which with ``web`` is at ``/``. While it
        serves, blocks of degrade jobs age (:mod:`netsum_controller.monitoring.scanner`), and shards of memory are kept on devices
        that report at least every ``lease`` seconds (:mod:`netsum_controller.regions.reconciler`)."""
        if self._serving is None:
            tls_settings = None if tls is None else tls_context(*tls)
            metrics = Metrics(self.context)
            with ExitStack() as stack:
                feed = stack.enter_context(closing(EventStream(self.context, metrics.views))) if web else None
                server = HttpServer(
                    *(self.context, self.membership, host, port, tls_settings),
                    metrics=metrics,
                    metrics_token=metrics_token,
                    feed=feed,
                    enroll=enroll,
                    join_token=join_token,
                )
                stack.enter_context(closing(server))
                if feed is not None:
                    stack.callback(feed.close)  # first: the server waits for the feed's readers
                scheme = "http" if tls is None else "https"
                url = f"{scheme}://{advertise or host}:{server.port}"
                self.context.url = url if pin is None else pinned_url(url, pin)
                if watch is not None:
                    stack.enter_context(closing(SwitchMonitor(self.context, watch)))
                    stack.enter_context(closing(LinkWatcher(self.context)))
                    stack.enter_context(closing(PathMonitor(self.context)))
                stack.enter_context(closing(AgingScanner(self.context)))
                self.context.beats.lease = lease
                stack.enter_context(closing(RegionReconciler(self.context)))
                self._serving = stack.pop_all()
        assert self.context.url is not None
        return self.context.url

    def close(self) -> None:
        """Stop serving and watching, and close the state file. The switches go on, and so do memory devices."""
        if self._serving is not None:
            self._serving.close()
            self._serving = self.context.url = None
        self.context.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
