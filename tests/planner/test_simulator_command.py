# SPDX-License-Identifier: MIT
"""`netsum simulate`: its JSON, scenarios, plans, traces and pictures, and what it says about bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from netsum_planner.topologies import shapes

from tests.planner.commands import netsum, ran, refused, written


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, shapes.leaf_spine(2, 2, 2, 10))


def test_json_and_table(file: Path) -> None:
    found = ran("simulate", file, "--size", "16M")
    assert [each["jobs"][0]["algorithm"] for each in found] == ["in_network", "ring"]
    inside, ring = (each["jobs"][0] for each in found)
    assert inside["workers"] == 4
    assert inside["algbw_GBps"] == pytest.approx(10, rel=0.03)
    assert ring["busbw_GBps"] == pytest.approx(10, rel=0.03)
    assert ring["algbw_GBps"] * 1.5 == pytest.approx(ring["busbw_GBps"])
    assert all(each["links"][0]["share"] > 0.9 for each in found)
    shown = netsum("simulate", file, "--size", "16M").output
    assert "leafspine2x2x2: flows, seed 0" in shown
    assert "in_network" in shown


def test_hosts_and_links_that_are_left_out(file: Path) -> None:
    (found,) = ran("simulate", file, "--algorithm", "in_network", "--hosts", "h1,h3", "--down", "leaf1,spine1")
    assert found["jobs"][0]["workers"] == 2
    assert all(each["link"] != "leaf1 -> spine1" for each in found["links"])


def test_packets_count_what_became_of_them(file: Path) -> None:
    words = ("simulate", file, "--algorithm", "in_network", "--size", "256K", "--level", "packet", "--loss", 0.02)
    (found,) = ran(*words)
    assert found["packets"]["lost"] > 0
    assert found["packets"]["retransmissions"] > 0
    assert "retransmissions" in netsum(*words).output


def test_a_scenario_runs_its_jobs_together(file: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "two.yaml"
    scenario.write_text(
        "jobs:\n"
        "  - {name: a, hosts: [h1, h3], size: 16M, calls: 2}\n"
        "  - {name: b, hosts: [h2, h4], algorithm: ring, size: 8M, start_ms: 1}\n"
        "stragglers:\n"
        "  - {host: h4, late_ms: 3}\n"
        "failures:\n"
        "  - {link: [leaf1, spine1], at_ms: 1, until_ms: 2, found_ms: 0.1}\n"
    )
    (found,) = ran("simulate", file, "--scenario", scenario)
    assert [(job["job"], job["algorithm"]) for job in found["jobs"]] == [("a", "in_network"), ("b", "ring")]
    assert len(found["jobs"][0]["calls"]) == 2
    assert found["jobs"][1]["ends"][0] > 0.004


def test_what_is_wrong_with_a_scenario_is_said_with_its_line(file: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "bad.yaml"
    scenario.write_text("jobs:\n  - {size: 6x}\n  - {name: b, algorithm: rings}\nstragglers:\n  - {host: h1}\n")
    said = refused("simulate", file, "--scenario", scenario)
    for words in ("bad.yaml:2: jobs.0.size: '6x' is not a size", "bad.yaml:3: jobs.1.algorithm: rings", "bad.yaml:5: "):
        assert words in said
    scenario.write_text("jobs:\n  - {name: a, hosts: [h1, h9]}\nfailures:\n  - {link: [leaf1, leaf2], at_ms: 1}\n")
    said = refused("simulate", file, "--scenario", scenario)
    assert "bad.yaml:2: jobs.0.hosts: there is no host h9" in said
    assert "bad.yaml:4: failures.0.link: there is no link leaf1 - leaf2" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--algorithm", "rings"), "there are in_network, ring"),
        (("--size", "0"), "1 byte or more"),
        (("--loss", "0.1"), "add --level packet"),
        (("--level", "packet", "--algorithm", "ring"), "in_network alone"),
        (("--algorithm", "plan:nothing.json"), "nothing.json: No such file"),
        (("--size", "1K", "--plot", "nowhere/there.png"), "nowhere/there.png"),
        (("--trace", "somewhere"), "takes one --algorithm"),
    ],
)
def test_bad_input_is_named(file: Path, words: tuple[str, ...], told: str) -> None:
    assert told in refused("simulate", file, *words)


def test_a_plan_of_trees_is_simulated(tmp_path: Path) -> None:
    """Its rate is that of the schedule, once there are many chunks."""
    file = written(tmp_path, shapes.dgx1v())
    made = netsum("plan", "trees", file, "--hosts", "gpu0,gpu1,gpu2", "--collective", "allreduce", "--chunks", 32, "--json")
    plan = tmp_path / "plan.json"
    plan.write_text(made.output)
    (found,) = ran("simulate", file, "--hosts", "gpu0,gpu1,gpu2", "--algorithm", f"plan:{plan}", "--size", "256M")
    assert found["jobs"][0]["algbw_GBps"] == pytest.approx(json.loads(made.output)["schedule"]["GBps"], rel=0.1)
    other = written(tmp_path, shapes.star(3, 1))
    assert "has no link gpu" in refused("simulate", other, "--algorithm", f"plan:{plan}")


def test_a_plan_that_hosts_read_is_simulated_batch_by_batch(file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(netsum("plan", "schedule", file).output)
    (found,) = ran("simulate", file, "--algorithm", f"plan:{plan}", "--size", "64M")
    assert found["jobs"][0]["algbw_GBps"] == pytest.approx(json.loads(plan.read_text())["GBps"], rel=0.1)


def test_pictures_are_written(file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    assert netsum("simulate", file, "--size", "1M", "--plot", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def chakra() -> tuple[Any, Any]:
    """The messages of Chakra's et_def.proto that are used, as protobuf's own classes."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="chakra", syntax="proto3")
    fields = {
        "Attribute": [
            ("name", 1, kinds.TYPE_STRING),
            ("int64_val", 9, kinds.TYPE_INT64),
            ("bool_val", 27, kinds.TYPE_BOOL),
        ],
        "Metadata": [("version", 1, kinds.TYPE_STRING)],
        "Node": [
            ("id", 1, kinds.TYPE_UINT64),
            ("name", 2, kinds.TYPE_STRING),
            ("type", 3, kinds.TYPE_INT32),
            ("data_deps", 5, kinds.TYPE_UINT64),
            ("duration_micros", 7, kinds.TYPE_UINT64),
            ("attr", 10, kinds.TYPE_MESSAGE),
        ],
    }
    for name, parts in fields.items():
        made = file.message_type.add(name=name)
        for field, number, kind in parts:
            each = made.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
            if field in ("data_deps", "attr"):
                each.label = kinds.LABEL_REPEATED
            if field == "attr":
                each.type_name = ".chakra.Attribute"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    metadata, node = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}")) for name in ("Metadata", "Node")
    )
    return metadata, node


def read_trace(path: Path) -> list[Any]:
    metadata, node = chakra()
    found: list[Any] = []
    data, at = path.read_bytes(), 0
    while at < len(data):
        size, shift = 0, 0
        while True:
            byte, at = data[at], at + 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found.append((node if found else metadata).FromString(data[at : at + size]))
        at += size
    assert found[0].version
    return found[1:]


@pytest.mark.parametrize("algorithm", ["in_network", "ring", "double_binary_tree"])
def test_traces_are_chakras(file: Path, tmp_path: Path, algorithm: str) -> None:
    done = netsum("simulate", file, "--algorithm", algorithm, "--size", "1M", "--trace", tmp_path / "trace")
    assert done.exit_code == 0, done.output
    ranks = [read_trace(tmp_path / f"trace.{rank}.et") for rank in range(4)]
    sent: dict[int, tuple[int, int, int]] = {}
    received: dict[int, tuple[int, int, int]] = {}
    for rank, nodes in enumerate(ranks):
        numbers = {node.id for node in nodes}
        assert len(numbers) == len(nodes)
        for node in nodes:
            assert set(node.data_deps) <= numbers
            values = {each.name: each.int64_val for each in node.attr}
            if node.type in (5, 6):
                place = sent if node.type == 5 else received
                place[values["comm_tag"]] = (values["comm_src"], values["comm_dst"], values["comm_size"])
                assert rank == values["comm_src" if node.type == 5 else "comm_dst"]
    assert sent == received
    if algorithm == "in_network":
        assert [node.type for node in ranks[0]] == [4, 7]
        assert {each.name: each.int64_val for each in ranks[0][1].attr}["comm_size"] == 1 << 20
    else:
        assert len(sent) > 10
