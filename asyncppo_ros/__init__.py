"""
Asynchronous PPO for ROS 2 robots.

The loop, in the order in which the data flows::

    simulation/simulation.py   BatchedSimulation.step   mj_step -> observation, reward, ends
    acting/rollout.py          Rollout.collect          one Chunk, stamped with its policy
    transport/codec.py         encode_chunk             header + raw arrays, no pickle
    transport/sender.py        ChunkSender.send         ZeroMQ, under a permit
    transport/receiver.py      ChunkReceiver            checks everything, grants permits
    learning/batcher.py        Batcher.next_batch       admits by policy lag
    learning/advantages.py     gae                      advantage, value target
    learning/losses.py         clipped_objective        dual-clip PPO
    learning/learner.py        Learner.update           policy_version + 1
    policy/snapshot.py         PolicySnapshot           weights + normalizer + identity
    nodes/policy_topic.py      RosPolicyPublisher       the same bytes as the run's artefact

``train_local.py`` is the same loop in one process.  Importing this package imports nothing
heavy: a robot needs numpy alone.
"""

__version__ = '0.1.0'
