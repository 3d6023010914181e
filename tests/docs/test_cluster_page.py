# SPDX-License-Identifier: MIT
"""docs/cluster.md: its manifest for Kubernetes agrees with itself and with the command that it runs."""

from __future__ import annotations

import yaml
from netsum_testbed.aggregator import aggregator

from tests.docs.pages import ROOT


def test_the_manifest_starts_an_aggregator_that_the_service_reaches() -> None:
    text = (ROOT / "examples" / "kubernetes_aggregator.yaml").read_text("utf-8")
    deployment, service = (each["spec"] for each in yaml.safe_load_all(text))
    (container,) = deployment["template"]["spec"]["containers"]
    words = container["command"][-1].split()
    command = words[words.index("aggregator") + 1 :]
    given = dict(zip(command[::2], command[1::2], strict=True))
    options = {name: option for option in aggregator.params for name in option.opts}
    assert given.keys() <= options.keys()
    assert given["--advertise"] == service["clusterIP"]
    served = {(each["containerPort"], each["protocol"]) for each in container["ports"]}
    assert served == {(each["port"], each["protocol"]) for each in service["ports"]}
    assert served == {(options["--port"].default, "TCP"), (options["--udp-port"].default, "UDP")}
    assert service["selector"] == deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert given["--state"] in {each["mountPath"] for each in container["volumeMounts"]}
