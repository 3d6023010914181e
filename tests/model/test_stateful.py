"""The same rules on larger configurations, driven by hypothesis: up to 5 workers, windows up to 8, ids that wrap."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from netsum.wire.schema import Outcome

from tests.model import host as host_rules
from tests.model.host import JOB_ID, Call, Host
from tests.model.rules import Packet, Reply, SwitchModel
from tests.model.scenario import Scenario

REFUSALS = [outcome for outcome in Outcome if outcome >= Outcome.UNKNOWN_JOB]


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Calls with payloads, empties, RANGE and ABORT; every value a random 24-bit number."""
    workers = draw(st.integers(1, 5))
    window = draw(st.integers(1, 8))
    values = st.integers(0, (1 << 24) - 1)
    programs: list[list[Call]] = [[] for _ in range(workers)]
    for gen in range(draw(st.integers(1, 4))):
        blocks = draw(st.integers(1, 12))
        predicted = draw(st.booleans())
        aborter = draw(st.one_of(st.none(), st.integers(0, workers - 1)))
        for rank, program in enumerate(programs):
            call = Call(
                gen,
                tuple(draw(st.one_of(st.none(), values)) for _ in range(blocks)),
                predicted=predicted,
                misfits=frozenset(draw(st.sets(st.integers(0, blocks - 1), max_size=2))) if predicted else frozenset(),
                aborts=rank == aborter,
                bare=draw(st.booleans()),
            )
            program.append(call)
    slots = 1 << (2 * window - 1).bit_length()
    first = draw(st.sampled_from([0, 1, 4096, 0x7FFFFFFE, 0xFFFFFFF8, 0xFFFFFFFF]))
    return Scenario("random", tuple(map(tuple, programs)), window, slots, first_block_id=first)


class Network(RuleBasedStateMachine):
    """Hosts and a switch; packets in flight are delivered in any order, twice, or lost."""

    scenario: Scenario
    switch: SwitchModel
    hosts: list[Host]
    in_flight: list[Packet | Reply]

    @initialize(scenario=scenarios())
    def start(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.switch = SwitchModel({JOB_ID: scenario.job(1, scenario.first_block_id)})
        self.hosts = list(scenario.hosts(0, 1))
        self.in_flight = []
        for host in self.hosts:
            self.in_flight += host_rules.outstanding(host)

    def deliver(self, item: Packet | Reply) -> None:
        if isinstance(item, Packet):
            step = self.switch.step(item)
            assert step.outcome not in REFUSALS, (step.outcome, item)
            self.in_flight += step.replies
            return
        rank = item.port - 1
        before = self.hosts[rank]
        after = self.hosts[rank] = host_rules.receive(before, item)
        known = set(host_rules.outstanding(before))
        self.in_flight += [packet for packet in host_rules.outstanding(after) if packet not in known]

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.in_flight) - 1))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def arrives(self, data: st.DataObject) -> None:
        self.deliver(self.in_flight.pop(self.pick(data)))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), count=st.integers(1, 12))
    def some_arrive_in_order(self, data: st.DataObject, count: int) -> None:
        at = self.pick(data)
        burst, self.in_flight[at : at + count] = self.in_flight[at : at + count], []
        for item in burst:
            self.deliver(item)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def is_duplicated(self, data: st.DataObject) -> None:
        self.deliver(self.in_flight[self.pick(data)])

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def is_lost(self, data: st.DataObject) -> None:
        self.in_flight.pop(self.pick(data))

    @rule(data=st.data())
    def a_timer_fires(self, data: st.DataObject) -> None:
        host = self.hosts[data.draw(st.integers(0, len(self.hosts) - 1))]
        self.in_flight += host_rules.outstanding(host)

    @invariant()
    def results_are_exact(self) -> None:
        for host in getattr(self, "hosts", ()):
            assert not host.broken, host.broken
            assert not host.mismatched
            for index, result in enumerate(host.results):
                assert result in (None, self.scenario.expected(host, host.plan[index]))

    def teardown(self) -> None:
        """Nothing more is lost: everybody comes to the end."""
        if not hasattr(self, "hosts"):
            return
        rounds = 0
        while not all(host.done for host in self.hosts):
            burst, self.in_flight = self.in_flight, []
            for host in self.hosts:
                burst += host_rules.outstanding(host)
            for item in burst:
                self.deliver(item)
            self.results_are_exact()
            rounds += 1
            assert rounds < 1000, "not everybody can finish"
        self.results_are_exact()


TestNetwork = Network.TestCase
TestNetwork.settings = settings(stateful_step_count=60, suppress_health_check=list(HealthCheck))
