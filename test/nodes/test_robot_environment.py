"""Real transitions: a robot behind topics as an environment of one."""

import contextlib
import signal
import sys
import threading
import time

from harness import wait_for
import numpy as np
import pytest
from robots import collected, config_of, environment_of, sim_robot, STEPS

from asyncppo_ros.config import DeployConfig
from asyncppo_ros.errors import ConfigError, TaskError
from asyncppo_ros.simulation.environment import StepMissed

rclpy = pytest.importorskip('rclpy', reason='needs ROS 2: pip install "asyncppo_ros[ros-jazzy]"')
pytestmark = [pytest.mark.nodes, pytest.mark.one_distro]


@pytest.fixture(scope='module', autouse=True)
def context():
    rclpy.init()
    yield
    rclpy.try_shutdown()


@pytest.fixture(scope='module')
def robot():
    with sim_robot('lockstep', 'sim_robot.lockstep:=true') as process:
        yield process


@pytest.fixture(scope='module')
def environment(robot):
    with environment_of(config_of('lockstep')) as environment:
        yield environment


@pytest.fixture
def out(environment):
    return np.zeros((1, environment.observation_size), np.float32)


def ready(environment, out):
    """Begin an episode; while processes find each other that may take a while."""
    for _ in range(10):
        with contextlib.suppress(StepMissed):
            environment.reset(out)
            return
    environment.reset(out)


def test_transitions_are_those_of_the_simulation(environment):
    """Without noise, from the same starts: what came over topics is what was simulated."""
    chunks, (observations, rewards, finals, episodes) = collected(environment, 2)
    for number, chunk in enumerate(chunks):
        np.testing.assert_allclose(chunk.observation[:STEPS, 0], observations[:, number],
                                   rtol=0.0, atol=1e-6)
        assert np.abs(chunk.reward[:, 0] - rewards[:, number]).max() < 1e-6
        np.testing.assert_allclose(chunk.final_observation, chunk.observation[STEPS])
        np.testing.assert_allclose(chunk.final_observation[0], finals[number], rtol=0.0,
                                   atol=1e-6)
        np.testing.assert_allclose(chunk.episodes[0], episodes[number], atol=1e-4)
        assert chunk.truncated[-1, 0] and not chunk.terminated.any()


def test_the_robot_is_stopped_at_the_end_of_an_episode_and_waits_for_a_reset(environment, out):
    ready(environment, out)
    assert not environment.needs_reset
    for _ in range(STEPS):
        result = environment.step(np.full((1, 6), 0.2, np.float32), out)
    assert result.truncated[0] and environment.needs_reset
    np.testing.assert_array_equal(result.final_observation, out)
    with pytest.raises(StepMissed, match='only a reset'):
        environment.step(np.zeros((1, 6), np.float32), out)


def test_a_robot_that_falls_silent_misses_a_step(environment, robot, out):
    ready(environment, out)
    action = np.zeros((1, 6), np.float32)
    for _ in range(5):
        environment.step(action, out)
    robot.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with pytest.raises(StepMissed):
            environment.step(action, out)
        assert time.monotonic() - begun < 10.0 and environment.needs_reset
        environment.idle = lambda: time.monotonic() - begun > 4.0
        with pytest.raises(StepMissed, match='cannot be used|stopped while'):
            environment.reset(out)
    finally:
        environment.idle = lambda: False
        robot.send_signal(signal.SIGCONT)
    ready(environment, out)
    environment.step(action, out)


def test_an_emergency_stop_ends_the_episode_until_it_is_released(environment, out):
    from std_srvs.srv import Trigger
    ready(environment, out)
    action = np.zeros((1, 6), np.float32)
    environment.step(action, out)
    control = environment._control
    control._press(None, Trigger.Response())
    with pytest.raises(StepMissed, match='emergency stop'):
        environment.step(action, out)
    begun = time.monotonic()
    environment.idle = lambda: time.monotonic() - begun > 1.0
    with pytest.raises(StepMissed):
        environment.reset(out)
    environment.idle = lambda: False
    control._release(None, Trigger.Response())
    ready(environment, out)
    environment.step(action, out)


def test_in_real_time_it_goes_to_the_start_pose_and_notices_every_late_command(tmp_path):
    deploy = DeployConfig(state_timeout_s=0.5, start_speed=2.0)
    with sim_robot('real', 'sim_robot.sensor_noise:=0.1') as _, \
            environment_of(config_of('real', 'start_pose', deploy), False) as environment:
        out = np.zeros((1, environment.observation_size), np.float32)
        action = np.full((1, 6), 0.5, np.float32)
        ready(environment, out)
        np.testing.assert_allclose(out[0, :6], environment._episodes.start_pose, atol=0.3)
        taken, end = 0, time.monotonic() + 60.0
        while taken < 20 and time.monotonic() < end:
            try:
                begun = time.monotonic()
                environment.step(action, out)
                # On the average as fast as it was trained for.
                assert time.monotonic() - begun < 1.0
                taken += 1
            except StepMissed:
                # A busy machine is late now and then, and then it says so.
                ready(environment, out)
        assert taken == 20
        time.sleep(2.0 * environment.control_dt)
        with pytest.raises(StepMissed, match='ms after the state it answers'):
            environment.step(action, out)
        # Nobody acts for longer than some missed steps: the second thread stops the robot.
        ready(environment, out)
        deadline = time.monotonic() + 20.0
        while environment._control._supervisor.mode.value != 'tripped':
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(StepMissed, match='in a row were missed'):
            environment.step(action, out)
        # It is held where it was, and not where the policy wanted it to go.
        held = environment._control._last
        position, _ = environment._control.measured.moved(time.monotonic())
        np.testing.assert_allclose(held, position, atol=0.2)


@pytest.mark.parametrize('change, error, words', [
    ({'task': 'quadruped_walk'}, TaskError, 'state.fields, which no robot measures'),
    ({'task': 'cartpole_swingup', 'reset': 'start_pose'}, ConfigError,
     'actor.reset = start_pose: this task gives effort commands'),
    ({'task': 'cartpole_swingup', 'output': 'forward_command'}, ConfigError,
     'needs deploy.allow_unwatched'),
    ({'reset_service': ''}, ConfigError, 'robot.reset_service is empty'),
    ({'reset': 'prompt'}, ConfigError, 'there is no terminal to ask at'),
    ({'joint_names': ('elbow=',)}, ConfigError, 'must be POLICY=ROBOT')])
def test_what_cannot_work_is_refused_in_one_line(monkeypatch, change, error, words):
    monkeypatch.setattr(sys, 'stdin', open('/dev/null'))  # noqa: SIM115
    threads = threading.active_count()
    with pytest.raises(error, match=words) as caught, environment_of(
            config_of('nowhere', **change)):
        pass
    assert '\n' not in str(caught.value)
    wait_for(lambda: threading.active_count() <= threads, 'end of threads')


class StandIn:
    """What a reset asks of `RobotControl`, of a robot with two joints that is moved by hand."""

    interface = 'effort'

    def __init__(self, poses):
        self.measured, self.poses, self.looks = self, list(poses), 0

    def moved(self, now):
        return np.array(self.poses.pop(0)), None

    def idle(self):
        self.looks += 1
        return self.looks > 100


def test_a_person_is_asked_until_the_robot_is_at_its_start(monkeypatch, capfd):
    import os
    import pty

    from asyncppo_ros.nodes.robot_reset import PromptReset
    keyboard, terminal = pty.openpty()
    monkeypatch.setattr(sys, 'stdin', open(terminal))  # noqa: SIM115
    control = StandIn([(0.1, 2.0), (0.1, 0.9)])
    reset = PromptReset(control, np.array((0.0, 1.0)), ('hip', 'knee'), 0.3)
    os.write(keyboard, b'\n\n')
    reset()
    told = capfd.readouterr().err
    assert 'press Enter' in told and 'Not near the start pose: knee at 2.00, start 1.00' in told
    assert 'hip' not in told and control.poses == []
    # Nobody presses it, and the actor is told to end.
    with pytest.raises(StepMissed, match='stopped while a person was waited for'):
        reset()
