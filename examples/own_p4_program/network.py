# SPDX-License-Identifier: MIT
"""Two hosts on a netsum-switch, at Mininet's prompt. Needs root. See docs/switch.md."""

import subprocess
import sys
import time
from pathlib import Path

from mininet.cli import CLI
from mininet.net import Mininet
from mininet.node import Switch

ADDRESS = "127.0.0.1:9559"


class NetsumSwitch(Switch):
    def start(self, _controllers):
        ready = Path(f"{self.name}.ready")
        ports = [f"-i{number}@{interface.name}" for number, interface in self.intfs.items() if number > 0]
        command = ["netsum-switch", *ports, "--no-p4", "--pcap", ".", "--log-file", self.name, "--ready-file", str(ready)]
        self.process = subprocess.Popen([*command, "--", "--grpc-server-addr", ADDRESS])
        while not ready.exists():
            if self.process.poll() is not None:
                sys.exit("netsum-switch did not start")
            time.sleep(0.05)

    def stop(self, *arguments, **options):
        self.process.terminate()
        self.process.wait()
        super().stop(*arguments, **options)


net = Mininet(controller=None)
switch = net.addSwitch("s1", cls=NetsumSwitch)
for number in (1, 2):
    host = net.addHost(f"h{number}", ip=f"10.0.0.{number}/24", mac=f"00:00:00:00:00:0{number}")
    net.addLink(host, switch, port2=number)
net.start()
subprocess.run([sys.executable, "control.py", ADDRESS], check=True)
CLI(net)
net.stop()
