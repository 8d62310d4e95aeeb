"""The loop of an actor against a learner that is a script: which policy, and when a chunk ends."""

from types import SimpleNamespace

import numpy as np
import pytest

from asyncppo_ros.acting import actor as actor_module
from asyncppo_ros.acting.actor import Actor, cut_lag, is_outdated
from asyncppo_ros.chunk import Identity, NO_POLICY
from asyncppo_ros.config import ActorConfig, Config, LearnerConfig


@pytest.mark.parametrize('target_lag, publish_updates, expected', [
    (0, 1, 1), (1, 1, 1), (1, 2, 1), (2, 1, 1), (3, 1, 2), (5, 3, 2), (8, 1, 7)])
def test_when_a_chunk_must_end(target_lag, publish_updates, expected):
    assert cut_lag(target_lag, publish_updates) == expected


def test_a_chunk_is_outdated_by_versions_or_by_a_step_back():
    assert not is_outdated(Identity(1, 5), Identity(1, 6), 2)
    assert is_outdated(Identity(1, 5), Identity(1, 7), 2)
    # A learner that was restarted from version 5 is the same one; from version 4 it is not.
    assert not is_outdated(Identity(1, 5), Identity(2, 5), 1)
    assert is_outdated(Identity(1, 5), Identity(2, 4), 1)
    assert not is_outdated(Identity(1, 5), NO_POLICY, 1)


@pytest.fixture(autouse=True)
def listen_after_every_step(monkeypatch):
    monkeypatch.setattr(actor_module, 'NEWS_S', 0.0)


class Script:
    """Sender, policies and rollout in one: the learner publishes after so many control steps."""

    run_id, source, stopped, waited_ns = 7, (3, 1), False, 0
    missed_steps = 0

    def __init__(self, publish_at, chunks, behind=0):
        self.publish_at, self.chunks, self.behind = dict(publish_at), chunks, behind
        self.newest = Identity(1, 0)
        self.steps, self.next_sequence, self.sent, self.polls = 0, 0, [], 0
        self.ledger = SimpleNamespace(stepped=lambda transitions: None)
        self.snapshots = {}

    def poll(self, timeout=0.0):
        self.polls += 1
        self.newest = max(self.newest, Identity(1, self.publish_at.pop(self.steps, 0)))

    def permit_for(self, sequence):
        return NO_POLICY

    def buffer(self):
        return None

    def look(self):
        pass

    def ready(self):
        return True

    def collect(self, snapshot, stamp, cut, stepped, *memory):
        begun = self.steps
        while self.steps < begun + 8:
            self.steps += 1
            if cut():
                break
        return SimpleNamespace(steps=self.steps - begun, version=snapshot.identity.policy_version)

    def send(self, chunk):
        self.sent.append((chunk.version, chunk.steps))
        self.next_sequence += 1
        self.stopped = len(self.sent) == self.chunks


class Policies(Script):
    """What of the script is a `PolicySubscriber`."""

    def __init__(self, script):
        self.script = script
        self.run_id = 0

    @property
    def newest(self):
        version = max(0, self.script.newest.policy_version - self.script.behind)
        return SimpleNamespace(identity=Identity(1, version))


def collect(script, **learner):
    config = Config(task='toy', learner=LearnerConfig(**learner))
    actor = Actor(config, 3, Policies, lambda: False, lambda: None, print)
    actor._collect_until_stopped(script, script, Policies(script))
    return script.sent


def test_news_ends_a_chunk_and_the_next_one_has_the_new_policy():
    # Chunks of 8 steps; policy 1 comes after 3 steps, policy 2 after 3 + 8 + 1.
    assert collect(Script({3: 1, 12: 2}, 4)) == [(0, 3), (1, 8), (1, 1), (2, 8)]


def test_with_a_wider_limit_it_ends_later_or_not_at_all():
    assert collect(Script({3: 1, 5: 2}, 2), target_lag=3) == [(0, 5), (2, 8)]
    assert collect(Script({3: 1, 5: 2}, 1), target_lag=4) == [(0, 8)]


def test_a_source_with_a_limit_of_its_own_goes_by_that():
    config = Config(task='toy', actor=ActorConfig(target_lag=4), learner=LearnerConfig())
    actor = Actor(config, 3, Policies, lambda: False, lambda: None, print)
    script = Script({3: 1, 5: 2}, 1)
    actor._collect_until_stopped(script, script, Policies(script))
    assert script.sent == [(0, 8)]


def test_without_pacing_nothing_is_cut():
    assert collect(Script({3: 1, 5: 2}, 2), pacing=False) == [(0, 8), (2, 8)]


def test_a_policy_that_is_on_its_way_is_waited_for_but_not_for_ever(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(actor_module.time, 'monotonic', lambda: now[0])
    script = Script({1: 1}, 4, behind=1)
    # The topic is silent.  Every poll takes a millisecond.
    poll = script.poll

    def slow_poll(timeout=0.0):
        now[0] += 0.001
        poll(timeout)

    script.poll = slow_poll
    # The second chunk begins with what is there, and is not cut for news that came before it.
    assert collect(script) == [(0, 1), (0, 8), (0, 8), (0, 8)]
    waited = script.polls - 1 - 3 * 9
    assert abs(waited - actor_module.ON_ITS_WAY_S / 0.001) <= 2
    assert np.isclose(now[0], script.polls * 0.001)


def test_it_listens_now_and_then_while_it_collects(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(actor_module.time, 'monotonic', lambda: now[0])
    monkeypatch.setattr(actor_module, 'NEWS_S', 0.005)
    script = Script({}, 1)
    beats = []

    def step():
        beats.append(script.polls)
        now[0] += 0.002

    actor = Actor(Config(task='toy'), 3, Policies, lambda: False, step, print)
    actor._collect_until_stopped(script, script, Policies(script))
    assert script.sent == [(0, 8)]
    # One poll before the chunk; then after 2, 8 and 14 ms.
    assert beats == [1, 2, 2, 2, 3, 3, 3, 4] and script.polls == 4


class RobotScript(Script):
    """The learner's news come first, then the policy, then the permit of the next chunk."""

    def __init__(self, *given, policy_after=0, permit_after=0, missed=(), **more):
        super().__init__(*given, **more)
        self.policy_after, self.permit_after = policy_after, permit_after
        self.missed, self.looks = list(missed), 0

    @property
    def arrived(self):
        known = [version for step, version in self.published if step + self.policy_after
                 <= self.steps]
        return Identity(1, max(known, default=0))

    published = ()

    def permit_for(self, sequence):
        return None if sequence > 0 and self.steps < self.permit_after else Identity(1, 0)

    def ready(self):
        self.missed_steps += bool(self.missed and self.missed[0] == 'reset')
        return not (self.missed and self.missed.pop(0) == 'reset')

    def collect(self, *given):
        return None if self.missed and self.missed.pop(0) == 'step' else super().collect(*given)


def collect_from_robot(script, **learner):
    class Arriving(Policies):
        @property
        def newest(self):
            return SimpleNamespace(identity=self.script.arrived)

    script.published = tuple(script.publish_at.items())
    config = Config(task='toy', learner=LearnerConfig(**learner))
    actor = Actor(config, 3, Arriving, lambda: False, lambda: None, print, robot=object())
    actor._collect_until_stopped(script, script, Arriving(script))
    return script.sent


def test_a_robot_goes_on_until_the_next_chunk_can_begin_at_once():
    # News after 3 steps.  The policy is there after 5, or the permit after 6.
    assert collect_from_robot(RobotScript({3: 1}, 2)) == [(0, 3), (1, 8)]
    assert collect_from_robot(RobotScript({3: 1}, 2, policy_after=2)) == [(0, 5), (1, 8)]
    assert collect_from_robot(RobotScript({3: 1}, 2, permit_after=6)) == [(0, 6), (1, 8)]
    # Where neither comes in time the chunk ends at its full length.
    assert collect_from_robot(RobotScript({3: 1}, 2, policy_after=99)) == [(0, 8), (0, 8)]


def test_what_a_robot_missed_is_not_sent_and_told_to_the_learner():
    script = RobotScript({}, 2, missed=['reset', 'reset', 'none', 'step', 'none', 'none'])
    assert collect_from_robot(script) == [(0, 8), (0, 8)]
    assert script.missed_steps == 2 and script.next_sequence == 2
