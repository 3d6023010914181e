# SPDX-License-Identifier: MIT
"""Rules switched off one by one to see the explorer object. The names are those of ``docs/memory.md``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from netsum_memory.replication.backup import Backup
from netsum_memory.replication.log import LogRecord
from netsum_memory.replication.messages import Ack, Counted, PeerMessage

from tests.model.memory.device import Asked, CarefulPrimary, ModelReplica
from tests.model.memory.explore import STUCK
from tests.model.memory.scenario import ControlRules, R, Scenario, W

DIFFER = "has done ("
LACKS = "counts and holds"
TWICE = "something twice"
OLD = "was shown to others before"


class Mutation(NamedTuple):
    """A rule switched off, and what the explorer must find then."""

    rule: str
    scenario: Scenario
    finds: str


class RepliesAtOnce(CarefulPrimary):
    def reach(self) -> int:
        return self.replica.log.end


class ReadsAtOnce(CarefulPrimary):
    def may_read(self) -> bool:
        return True


class ForgetsWhatItInherits(CarefulPrimary):
    def inherit(self) -> None:
        pass


class CountsInWithoutWaiting(CarefulPrimary):
    def _acknowledged(self, number: int, peer_message: Ack) -> None:
        super()._acknowledged(number, peer_message)
        if number in self._counted:
            self.needed.discard(number)


class HastyPrimary(CarefulPrimary):
    """Waits for who is joining and lacks one record."""

    lag = 1


class SaysNotFromWhere(HastyPrimary):
    def receive(self, number: int, peer_message: PeerMessage) -> None:
        super().receive(number, peer_message)
        for at, (to, sent) in enumerate(self.replica._peer_messages):
            if isinstance(sent, Counted):
                self.replica._peer_messages[at] = to, sent._replace(position=0)


class TakesNobodyIn(CarefulPrimary):
    def _acknowledged(self, number: int, peer_message: Ack) -> None:
        if number in self.needed:
            super()._acknowledged(number, peer_message)


class NeverRepeats(CarefulPrimary):
    def tend(self) -> None:
        pass


class TellsWhoLacksRecords(CarefulPrimary):
    """A device that has the whole log is not told again how far it is to be executed."""

    def tend(self) -> None:
        self.executed = dict.fromkeys(self.executed, self.replica.committed)
        super().tend()


class ComparesNoEpochs(Backup[Asked]):
    def same(self, mine: LogRecord[Asked], told: Any) -> bool:  # noqa: ARG002
        return True


class TrustsThoughJoining(Backup[Asked]):
    def trusted(self) -> int:
        return min(self.executed, self.replica.log.end)


class TrustsItsLog(Backup[Asked]):
    def start(self) -> None:
        self.agreed = self.end = self.replica.log.end
        super().start()


class NeverAsks(Backup[Asked]):
    def _fetch(self, position: int) -> None:
        pass


class HearsOfEveryEpoch(ModelReplica):
    def concerns(self, peer_message: PeerMessage) -> bool:  # noqa: ARG002
        return True


class OldWaits(ModelReplica):
    """A primary that begins anew waits for those only whom the controller names."""

    def regroup(self, epoch: int, joining: Any, number: int) -> None:
        if self.role is None and epoch == self.epoch:
            self.epoch -= 1
        super().regroup(epoch, joining, number)


class DoesAllThatComes(ModelReplica):
    """The primary asks no device whether it has done an instruction before."""

    def change(self, message: Asked, epoch: int) -> None:
        self.machine = _Forgetful(self.machine)
        super().change(message, epoch)
        self.machine = self.machine.machine


class ShowsWhatItHas(ModelReplica):
    def lacks(self, shown: int, epoch: int) -> bool:  # noqa: ARG002
        return False


class SpeaksAtOnce(ModelReplica):
    """State that a joining member is still to fetch counts as lost."""

    def lacks(self, shown: int, epoch: int) -> bool:
        return epoch <= self.epoch and shown > self.log.end


class SpeaksOfAll(ModelReplica):
    """Entries in the log and still to be done count as lost."""

    def lacks(self, shown: int, epoch: int) -> bool:
        return epoch <= self.epoch and shown > self.committed


class SpeaksOfLaterEpochs(ModelReplica):
    """Instructions done after this device had left the group count as lost."""

    def lacks(self, shown: int, epoch: int) -> bool:  # noqa: ARG002
        return self.ready and shown > self.log.end


class _Forgetful:
    """Knows no instruction that was done."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    def known(self, message: Asked) -> None:
        pass


def primary(role: type[CarefulPrimary]) -> type[ModelReplica]:
    """A replica with another primary's role."""
    return type(role.__name__, (ModelReplica,), {"primary_role": role})


def backup(role: type[Backup[Asked]]) -> type[ModelReplica]:
    """A replica with another backup's role."""
    return type(role.__name__, (ModelReplica,), {"backup_role": role})


def rule(name: str, scenario: Scenario, replica: type[ModelReplica], finds: str) -> Mutation:
    return Mutation(name, replace(scenario, name=f"without {name}", replica=replica), finds)


def control(name: str, scenario: Scenario, finds: str) -> Mutation:
    off = replace(ControlRules(), **{name: False})
    return Mutation(name, replace(scenario, name=f"without {name}", control=off), finds)


CALM = Scenario("no device fails", ((W,), (R,)), epochs=1, batches=True)
FAILS = Scenario("the primary seems dead", ((W,), (W,)), silent=(0,), epochs=2, batches=True)
READS = Scenario("the primary seems dead, a device reads", ((W, R), (R,)), silent=(0,), epochs=2, batches=True)
HANDS = Scenario("the primary hands over", ((W,), (R,)), wanted=((1, 0),), epochs=2, batches=True)
BACK = Scenario("the primary hands over and comes back", ((W,), (R,)), wanted=((1, 0), (0, 1)), epochs=3)
MOVES = Scenario("a shard moves", ((W,), (R,)), group=1, wanted=((1,),))
LEAVES = Scenario("a shard moves and comes back", ((W, W),), group=1, wanted=((1,), (0,)), epochs=4)
NEARLY = replace(MOVES, name="a shard moves to who lacks a little", replica=primary(HastyPrimary))
RETURNS = Scenario("a primary that seemed dead returns", ((W,), (W,)), silent=(0,), wanted=((1, 0),), epochs=3, swift=True)
THREE = Scenario("three devices", ((W,), (W,)), group=3, devices=3, silent=(0,), epochs=2, swift=True)
REJOINS = Scenario("a restart while a device joins", ((W,), (W,)), group=1, wanted=((0, 1), (1,)), restarts=(0,), durable=True)
COPIED = Scenario("a shard moves as a copy", ((W, W), (R,)), group=1, wanted=((1,),), keep=0)
LOSES = Scenario("a device loses its memory", ((W,), (R,)), restarts=(1,), silent=(0,), epochs=2)
LOSES_ALL = Scenario("the only device loses its memory", ((W, R),), group=1, devices=1, restarts=(0,), epochs=2)
BESIDE = Scenario("two switches", ((W,), (R,)), wanted=((1,),), silent=(0,), epochs=2, switches=2)

BACK_ALONE = Scenario("a folder is put back", ((W, R),), group=1, devices=1, put_back=(0,), durable=True)
BACK_BESIDE = replace(BACK_ALONE, name="a backup's folder is put back", group=2, devices=2, put_back=(1,), silent=(0,), epochs=2)
BACK_HEARD = replace(BACK_ALONE, name="a folder is put back, the controller knows", programs=((W,), (R,)), heard=True)
BACK_HEARD_BESIDE = replace(
    BACK_BESIDE, name="a backup's folder is put back, the controller knows", programs=((W,), (R,)), heard=True
)

SCENARIOS = (
    *(CALM, FAILS, READS, HANDS, BACK, MOVES, LEAVES, NEARLY, THREE, RETURNS, COPIED, LOSES, LOSES_ALL, BESIDE),
    *(BACK_ALONE, BACK_BESIDE, BACK_HEARD, BACK_HEARD_BESIDE),
)

MUTATIONS = (
    rule("replicate before executing", FAILS, primary(RepliesAtOnce), LACKS),
    rule("no read before the log is executed", HANDS, primary(ReadsAtOnce), OLD),
    rule("inherited names are known", FAILS, primary(ForgetsWhatItInherits), TWICE),
    rule("executed names are known", FAILS, DoesAllThatComes, TWICE),
    rule("messages count in their epoch", THREE, HearsOfEveryEpoch, LACKS),
    rule("epoch and position identify a record", RETURNS, backup(ComparesNoEpochs), LACKS),
    rule("a joining member trusts no log", RETURNS, backup(TrustsThoughJoining), DIFFER),
    rule("acknowledge only what is compared", THREE, backup(TrustsItsLog), LACKS),
    rule("wait for a member before it counts", MOVES, primary(CountsInWithoutWaiting), LACKS),
    rule("a member counts from a position on", MOVES, primary(SaysNotFromWhere), LACKS),
    rule("a restarted primary waits for all", replace(REJOINS, programs=((W,),)), OldWaits, LACKS),
    rule("a joining member comes to count", MOVES, primary(TakesNobodyIn), STUCK),
    rule("gaps are requested", MOVES, backup(NeverAsks), STUCK),
    rule("the primary repeats", CALM, primary(NeverRepeats), STUCK),
    rule("execution is repeated", CALM, primary(TellsWhoLacksRecords), STUCK),
    control("switches_first", BESIDE, OLD),
    control("same_memory", LOSES, LACKS),
    control("whole_only", MOVES, LACKS),
    control("vouched", BACK_HEARD, OLD),
    control("vouched", BACK_HEARD_BESIDE, OLD),
    Mutation("clients show their position", replace(BACK_ALONE, says=False), OLD),
    Mutation("clients show their position", replace(BACK_BESIDE, says=False), OLD),
    rule("a shorter log is lost memory", BACK_BESIDE, ShowsWhatItHas, OLD),
    rule("only members that count lose memory", replace(MOVES, programs=((W, W),)), SpeaksAtOnce, STUCK),
    rule("no device judges a later epoch", LEAVES, SpeaksOfLaterEpochs, "and it is not"),
    rule("a logged record is not lost", replace(HANDS, programs=((W, R),)), SpeaksOfAll, "and it is not"),
)
