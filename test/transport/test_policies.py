"""Policy channels without sockets: what is kept, what is fetched, and when a topic is silent."""

from making import FIRST, LAYOUT, make_intake
import numpy as np
import pytest

from asyncppo_ros.chunk import Identity, NO_POLICY, Source
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.transport import messages
from asyncppo_ros.transport.flow import Flow, SilenceAlarm
from asyncppo_ros.transport.messages import encode, hello
from asyncppo_ros.transport.policy_channel import InMemoryPolicyChannel, NewestPolicy
from asyncppo_ros.transport.policy_fetch import (
    ASK_AGAIN_S,
    PolicyFallback,
    ZmqPolicySubscriber,
)

KEY = b'k' * 32


def policy(version, generation=1, run_id=7, key=None):
    """Make the bytes of a policy."""
    card = {'run_id': run_id, 'generation': generation, 'policy_version': version,
            'gradient_steps': 0, 'env_steps': 0, 'task': 'toy', 'control_dt': 0.1,
            'observation': [], 'architecture': {'hidden_sizes': [2], 'activation': 'tanh'}}
    tensors = {'policy.0.weight': np.ones((2, 3), np.float32)}
    return PolicySnapshot.make(card, tensors, key).data


class Wire:
    """The learner as `ZmqPolicySubscriber` sees it."""

    def __init__(self):
        self.newest = NO_POLICY
        self.on_news = lambda: None
        self.policy_silent_ms = 0
        self.asked = []
        self.arrived = None

    def publish(self, version, generation=1):
        self.newest = Identity(generation, version)
        self.on_news()

    def fetch(self, have):
        self.asked.append(have)
        return True

    def take_policy(self):
        data, self.arrived = self.arrived, None
        return data


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_the_newest_policy_of_the_run_is_kept():
    newest = NewestPolicy()
    assert newest.newest is None and newest.identity == NO_POLICY
    newest.offer(policy(3))
    first = newest.newest
    newest.offer(policy(2))
    newest.offer(policy(3))
    newest.offer(policy(5)[:-9])
    assert newest.newest is first and newest.refused == 1
    newest.offer(policy(1, generation=2))
    assert newest.identity == Identity(2, 1)
    # Of another run: taken until it is known which one is meant.
    newest.offer(policy(0, run_id=9))
    assert newest.newest.run_id == 9
    newest.run_id = 7
    assert newest.newest is None
    newest.offer(policy(4, run_id=9))
    newest.offer(policy(0))
    assert newest.newest.run_id == 7


def test_with_a_key_only_signed_policies_are_kept():
    warnings = []
    newest = NewestPolicy(KEY, warnings.append)
    assert not newest.offer(policy(1)) and not newest.offer(policy(1, key=b'x' * 32))
    assert newest.newest is None and newest.refused == 2 and 'signed' in warnings[0]
    assert newest.offer(policy(1, key=KEY)) and newest.identity == Identity(1, 1)


def test_the_channel_within_a_process_is_one_of_them():
    channel = InMemoryPolicyChannel()
    channel.publish(policy(3), Identity(1, 3))
    assert channel.newest.data == policy(3)
    with pytest.raises(ValueError, match=r'policy 1\.3 is not newer than 1\.3'):
        channel.publish(policy(3), Identity(1, 3))
    with pytest.raises(ValueError, match=r'what was published as policy 1\.4 is none'):
        channel.publish(b'nothing', Identity(1, 4))


def test_a_policy_is_asked_for_once_and_again_after_a_while():
    wire, clock = Wire(), Clock()
    fetched = ZmqPolicySubscriber(wire, clock=clock)
    fetched.look()
    assert wire.asked == []
    wire.publish(2)
    wire.publish(3)
    fetched.look()
    assert wire.asked == [NO_POLICY]
    clock.now += ASK_AGAIN_S
    fetched.look()
    assert wire.asked == [NO_POLICY] * 2
    wire.arrived = policy(3)
    fetched.look()
    assert fetched.identity == Identity(1, 3) and len(wire.asked) == 2
    # News comes while a chunk is collected, when nobody looks.
    wire.publish(4)
    assert wire.asked[-1] == Identity(1, 3)


def test_a_policy_that_is_refused_does_not_make_a_busy_loop():
    wire, clock = Wire(), Clock()
    fetched = ZmqPolicySubscriber(wire, KEY, clock=clock)
    wire.publish(1)
    for _ in range(5):
        wire.arrived = policy(1)
        fetched.look()
    assert fetched.refused == 5 and len(wire.asked) == 1


class Fallback:
    """A `PolicyFallback` over a topic that is fed by hand."""

    def __init__(self):
        self.wire, self.clock, self.topic, self.warnings = Wire(), Clock(), NewestPolicy(), []
        self.policies = PolicyFallback(
            self.topic, ZmqPolicySubscriber(self.wire, clock=self.clock), self.wire, 5.0,
            self.warnings.append, self.clock)

    def look(self, after=0.0):
        self.clock.now += after
        self.policies.look()
        return self.wire.policy_silent_ms


def test_a_topic_that_brings_what_is_published_is_never_silent():
    line = Fallback()
    for version in range(30):
        line.wire.publish(version)
        assert line.look(0.9) == 0
        assert line.look(0.1) == 100
        line.topic.offer(policy(version))
        assert line.look() == 0
        # The learner is paused, or a chunk takes long.
        assert line.look(7.0) == 0
    assert line.wire.asked == [] and line.warnings == []


def test_a_topic_that_is_late_is_not_silent():
    line = Fallback()
    for version in range(30):
        line.wire.publish(version + 1)
        line.topic.offer(policy(version))
        assert line.look(1.0) == 0
    assert line.wire.asked == []


def test_while_the_topic_is_silent_policies_are_fetched():
    line = Fallback()
    line.topic.offer(policy(0))
    line.wire.publish(1)
    line.look()
    assert line.look(4.9) == 4900 and line.wire.asked == []
    assert line.look(0.2) == 5100 and line.wire.asked == [NO_POLICY]
    assert 'brought nothing for 5 s' in line.warnings[0]
    line.wire.arrived = policy(1)
    assert line.look(1.0) == 6100
    assert line.policies.identity == Identity(1, 1)
    assert line.policies.newest.data == policy(1)
    line.wire.publish(2)
    assert line.wire.asked[-1] == Identity(1, 1)
    # The topic comes back: nothing is fetched any more.
    line.topic.offer(policy(3))
    line.wire.publish(3)
    assert line.look(0.1) == 0 and line.policies.newest is line.topic.newest
    assert line.warnings[-1] == 'the policy topic is back'
    asked = len(line.wire.asked)
    line.wire.publish(4)
    line.look()
    assert len(line.wire.asked) == asked


def test_the_run_of_a_fallback_is_that_of_both_ways():
    line = Fallback()
    line.policies.run_id = 7
    line.topic.offer(policy(9, run_id=8))
    assert line.policies.newest is None and line.policies.run_id == 7


class Posted(list):
    def __call__(self, peer, message, payload=None):
        self.append((peer, message, payload))

    def of(self, peer):
        found = [(message, payload) for to, message, payload in self if to == peer]
        self.clear()
        return found


def test_the_learner_tells_of_policies_and_gives_them_to_those_who_ask():
    intake, posted = make_intake(publish=False), Posted()
    intake.post_to(posted)
    for number in (1, 2):
        intake.handle(bytes([number]), encode(hello(number, LAYOUT, 3, 4)))
    posted.clear()
    intake.published(FIRST, b'first')
    # Whoever gets a permit hears of it with that, and the others by news.
    assert {peer: message.newest for peer, message, _ in posted} == {b'\1': FIRST, b'\2': FIRST}
    posted.clear()
    intake.handle(b'\1', encode(messages.Fetch(*NO_POLICY)))
    assert posted.of(b'\1') == [(messages.Policy(*FIRST, 5), b'first')]
    intake.handle(b'\1', encode(messages.Fetch(*FIRST)))
    intake.published(FIRST, b'again')
    assert posted == []
    intake.pause()
    intake.published(Identity(1, 1), b'second')
    assert [(peer, message) for peer, message, _ in posted] == [
        (b'\1', messages.News(1, 1)), (b'\2', messages.News(1, 1))]
    posted.clear()
    intake.handle(b'\1', encode(messages.Fetch(*FIRST)))
    assert posted.of(b'\1') == [(messages.Policy(1, 1, 6), b'second')]
    # A stranger gets no policy.
    intake.handle(b'\3', encode(messages.Fetch(*NO_POLICY)))
    assert posted == [(b'\3', messages.Who(), None)]


def test_silence_is_an_alarm_with_the_names_of_the_actors():
    intake, warnings, outages = make_intake(), [], {}
    alarm = SilenceAlarm(5.0, outages, warnings.append)
    for number in (1, 2, 3):
        intake.handle(bytes([number]), encode(hello(number, LAYOUT, 3, 4)))

    def hear(number, silent_ms):
        intake.handle(bytes([number]), encode(messages.Heartbeat(
            0, 0, 0, sent_ns=1, policy_silent_ms=silent_ms)))
        alarm.look(intake.policy_silence)

    hear(1, 4999)
    assert intake.policy_silence[Source(1, 1)] == pytest.approx(4.999)
    assert not outages and not warnings
    hear(2, 5000)
    hear(3, 7000)
    assert outages == {alarm.NAME: 'policy topic silent for 7 s at actors [2, 3]: they fetch '
                                   'over ZeroMQ'}
    assert warnings == ['policy topic silent for 5 s at actors [2]: they fetch over ZeroMQ']
    assert Flow(intake).flow()['policy_silence_s'] == 7.0
    hear(3, 0)
    hear(2, 0)
    hear(1, 0)
    assert not outages and warnings[1:] == ['the policy topic reaches all actors again']


def test_the_books_in_the_metrics_add_up_and_are_not_read_at_every_update(monkeypatch):
    now = [0.0]
    intake = make_intake()
    flow = Flow(intake, lambda: now[0])
    reads = []
    totals = {'produced': 21, 'consumed': 10, 'dropped_by_age': 2, 'refused_by_check': 3,
              'in_flight': 5, 'lost_in_crash': 1}
    monkeypatch.setattr(intake, 'books_totals', lambda: reads.append(now[0]) or totals)
    for _ in range(17):
        row = flow.flow()
        now[0] += 0.125
    assert reads == [0.0, 1.0, 2.0]
    names = ('consumed', 'dropped', 'refused', 'in_flight', 'lost')
    assert row['transitions_produced'] == sum(row[f'transitions_{name}'] for name in names)
