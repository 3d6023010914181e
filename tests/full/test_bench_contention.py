"""``netsum bench contention``."""

from __future__ import annotations

from pathlib import Path

import pytest
from netsum_controller.errors import InputError
from netsum_planner.topologies import shapes
from netsum_planner.topologies.files import to_yaml
from netsum_testbed.bench.contention import bench_contention

from tests.full.commands import invoke


def test_hosts_without_a_switch_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "torus.yaml"
    file.write_text(to_yaml(shapes.torus((2, 2), 1)))
    with pytest.raises(InputError, match="on one switch each"):
        bench_contention.main([str(file)], standalone_mode=False)


@pytest.mark.full
@pytest.mark.root
def test_ports_count_what_is_computed_and_simulated(tmp_path: Path) -> None:
    """Acknowledgements and headers are in what is measured, and in the simulated only headers."""
    file = tmp_path / "bigraph.yaml"
    file.write_text(to_yaml(shapes.bigraph(4, 1)))
    _, told = invoke(bench_contention, f"{file} --switch embedded --size 256K --iterations 1")
    for order, arrays in (("before", 3), ("after", 1.75)):
        assert told[order]["computed"]["arrays"] == arrays
        assert told[order]["simulated"]["arrays"] == pytest.approx(arrays, rel=0.05)
        assert arrays < told[order]["measured"]["arrays"] < 1.3 * arrays
        assert told[order]["measured"]["GBps"] > 0
    between = {"upper1 -> lower1", "upper1 -> lower2", "upper2 -> lower1", "upper2 -> lower2"}
    assert told["before"]["measured"]["link"] in between | {" -> ".join(each.split(" -> ")[::-1]) for each in between}
