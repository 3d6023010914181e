# SPDX-License-Identifier: MIT
"""The switch as a whole: ports, data plane and P4Runtime server, started and stopped together."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from netsum_p4runtime import p4info_pb2

from netsum_switch.dataplane import DataPlane
from netsum_switch.errors import SwitchError
from netsum_switch.p4runtime.device import Device
from netsum_switch.p4runtime.server import Server, Tls
from netsum_switch.p4runtime.status import RpcError
from netsum_switch.pipeline import WITHOUT_LLVMLITE
from netsum_switch.ports import Port, PortError, PortSpec, open_port, parse_port
from netsum_switch.ports.captured import CapturedPort, PacketLog, PcapRecorder, Recorder
from netsum_switch.ports.faulty import FaultCounts, Faults, FaultyPort
from netsum_switch.ports.kernel_socket import SocketPort
from netsum_switch.ports.udp import UdpPort
from netsum_switch.queues import QueueOptions


class EmbeddedSwitch:
    """A running switch in this process; a context manager.

        with EmbeddedSwitch(ports=["1@udp:127.0.0.1:0", "2@udp:127.0.0.1:0"], cpu_port=510) as switch:
            controller.connect(switch.grpc_address)
            send_frames_to(switch.port_address(1))

    Threads: one for the data plane, those of gRPC, one for digests and one for idle timeouts when the program has any.
    """

    def __init__(
        self,
        ports: Iterable[str | PortSpec] = (),
        *,
        device_id: int = 0,
        grpc_address: str = "127.0.0.1:0",
        cpu_port: int = 0,
        drop_port: int = 511,
        program: str | Path | None = None,
        p4info: str | Path | None = None,
        tls: Tls | None = None,
        faults: Faults | None = None,
        queues: QueueOptions | None = None,
        pcap: str | Path | None = None,
        dump_packet_data: int = 0,
    ) -> None:
        """Open the ports, load the program, bind the server and start.

        Args:
            ports: As for `-i`: `1@veth0`, `1@udp:127.0.0.1:9001[:127.0.0.1:9101]`,
                `1@socket:10.1.0.9:12000[:12001]`.
            device_id: The device id that controllers must use.
            grpc_address: `HOST:PORT` (0 is a free port) or `unix:PATH`.
            cpu_port: Port of PacketIn and PacketOut, 0 for none.
            drop_port: Egress port that drops.
            program: File with p4c's BMv2 JSON to start with; without one, a controller has to push it.
            p4info: File with the program's p4info (text format), which lets controllers write without pushing it.
            queues: Depth, rate and number of the egress queues; by default simple_switch's.
            faults: Faults of the wires. With None there are none, and `set_faults` cannot change that.
            pcap: Folder for the frames of each port: `INTERFACE_in.pcap` and `INTERFACE_out.pcap`, of other ports
                `portNUMBER_in.pcap` and `portNUMBER_out.pcap`. All frames then pass through Python, which is slower.
            dump_packet_data: Bytes of each frame that are logged, at level INFO; as slow.

        Raises:
            SwitchError: One sentence on what is wrong; nothing is left open.
        """
        if importlib.util.find_spec("llvmlite") is None:  # said now, not when a program comes
            raise SwitchError(WITHOUT_LLVMLITE)
        with contextlib.ExitStack() as undo:
            recording = _Recording(None if pcap is None else Path(pcap), dump_packet_data)
            opened = _open_ports(ports, cpu_port, faults, recording, undo)
            self._dataplane = DataPlane(opened, cpu_port, queues)
            if dump_packet_data:
                self._dataplane.cpu_recorder = PacketLog(cpu_port, dump_packet_data, is_cpu_port=True)
            undo.callback(self._dataplane.stop)
            self.device = Device(device_id, self._dataplane, drop_port)
            undo.callback(self.device.stop)
            if program is not None:
                _start_program(self.device, Path(program), None if p4info is None else Path(p4info))
            server = Server(self.device, grpc_address, tls)
            undo.callback(server.stop)
            self._dataplane.start()
            self._running = undo.pop_all()
        self.grpc_address = server.address

    def port_address(self, number: int) -> tuple[str, int]:
        """The UDP address to which a port's frames, or their payloads, are sent. Raises PortError if there is no such port
        or it is on an interface."""
        address = self.udp_ports.get(number)
        if address is None:
            raise PortError(f"port {number} is not a UDP port of this switch")
        return address

    @property
    def udp_ports(self) -> dict[int, tuple[str, int]]:
        """UDP addresses by port number, of the ports that have one."""
        ports = self._dataplane.ports.items()
        return {
            number: layer.address for number, port in ports for layer in _layers(port) if isinstance(layer, UdpPort | SocketPort)
        }

    @property
    def port_names(self) -> dict[int, str]:
        """Interface or UDP address by port number."""
        return {number: port.name for number, port in self._dataplane.ports.items()}

    def set_faults(self, faults: Faults) -> None:
        """Change the faults from the next frame on; the random sequence goes on."""
        with self._dataplane.lock:
            for number, port in self._faulty.items():
                port.set(faults.of(number).into, faults.of(number).out)

    @property
    def fault_counts(self) -> dict[int, dict[str, FaultCounts]]:
        """Counts of the faults so far, by port number and direction (`in`, `out`); empty if there are no faults."""
        return {number: port.counts for number, port in self._faulty.items()}

    @property
    def _faulty(self) -> dict[int, FaultyPort]:
        ports = self._dataplane.ports.items()
        return {number: layer for number, port in ports for layer in _layers(port) if isinstance(layer, FaultyPort)}

    def stop(self) -> None:
        """Stop the server, then the data plane, and close the ports. Idempotent."""
        self._running.close()

    def __enter__(self) -> EmbeddedSwitch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _layers(port: Port) -> Iterator[Port]:
    """A port, and those that it wraps."""
    yield port
    while isinstance(port, CapturedPort | FaultyPort):
        port = port.inner
        yield port


@dataclass
class _Recording:
    """`--pcap` and `--dump-packet-data`; `of` may be called once for each port."""

    folder: Path | None
    dump_packet_data: int
    _ports: dict[str, int] = field(default_factory=dict)

    def of(self, spec: PortSpec) -> list[Recorder]:
        """Raises PortError if two ports would write to one file, CaptureError if a file cannot be written."""
        recorders: list[Recorder] = []
        if self.folder is not None:
            name = spec.interface or f"port{spec.number}"
            if (other := self._ports.setdefault(name, spec.number)) != spec.number:
                raise PortError(f"ports {other} and {spec.number} are both on {name}, and --pcap has one pair of files for it")
            recorders.append(PcapRecorder(self.folder, name))
        if self.dump_packet_data:
            recorders.append(PacketLog(spec.number, self.dump_packet_data))
        return recorders


def _open_ports(
    ports: Iterable[str | PortSpec], cpu_port: int, faults: Faults | None, recording: _Recording, undo: contextlib.ExitStack
) -> list[Port]:
    opened: dict[int, Port] = {}
    for given in ports:
        spec = parse_port(given) if isinstance(given, str) else given
        if spec.number in opened:
            raise PortError(f"port {spec.number} is given twice")
        if spec.number == cpu_port != 0:
            raise PortError(f"Cpu port {cpu_port} is used as a data port")
        port = open_port(spec)
        undo.callback(port.close)
        if faults is not None:
            of_port = faults.of(spec.number)
            port = FaultyPort(port, of_port.into, of_port.out, faults.seed)
            undo.callback(port.close)
        if recorders := recording.of(spec):
            port = CapturedPort(port, recorders)
            undo.callback(port.close)
        opened[spec.number] = port
    return list(opened.values())


def _start_program(device: Device, program: Path, p4info: Path | None) -> None:
    message: Any | None = None
    try:
        json_text = program.read_bytes()
        if p4info is not None:
            message = text_format.Parse(p4info.read_text(), p4info_pb2.P4Info())
    except (OSError, UnicodeDecodeError) as error:
        name = getattr(error, "filename", None) or p4info
        raise SwitchError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    except text_format.ParseError as error:
        raise SwitchError(f"{p4info} is not a p4info in text format: {error}") from error
    try:
        device.start_with(json_text, message)
    except SwitchError as error:
        raise type(error)(f"{program}: {error}") from error
    except RpcError as error:
        raise SwitchError(f"{program}: {error.message}") from error
