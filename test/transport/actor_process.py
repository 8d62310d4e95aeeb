"""An actor for the tests, as a process of its own: 4 × 3 transitions in no time."""

import argparse
import time

from making import LAYOUT, make_chunk

from asyncppo_ros.transport.messages import hello
from asyncppo_ros.transport.sender import ZmqChunkSender


def collect(sender, step_s, policy):
    """Step through one chunk; cut it short when the run ends."""
    steps = 0
    while steps < 4 and (steps == 0 or not sender.stopped):
        time.sleep(step_s)
        sender.ledger.stepped(3)
        steps += 1
        sender.poll()
    return make_chunk(steps, sequence=sender.next_sequence, run_id=sender.run_id,
                      actor_id=sender.source.actor_id, incarnation=sender.source.incarnation,
                      generation=policy.generation, policy_version=policy.policy_version)


def main():
    """Collect until the learner says stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument('address')
    parser.add_argument('actor_id', type=int)
    parser.add_argument('--step_s', type=float, default=0.0005)
    parser.add_argument('--kind', default='auto')
    arguments = parser.parse_args()
    sender = ZmqChunkSender(arguments.address, hello(arguments.actor_id, LAYOUT, 3, 4),
                            kind=arguments.kind)
    while not (sender.connect(1.0) or sender.stopped):
        pass
    while not sender.stopped:
        minimum = sender.permit_for(sender.next_sequence)
        if minimum is None:
            sender.poll(0.01)
            continue
        # A permit is given only for a policy that is published.
        sender.send(collect(sender, arguments.step_s, max(minimum, sender.newest)))
    sender.close()


if __name__ == '__main__':
    main()
