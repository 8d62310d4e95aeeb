"""
Every setting once: type, default, unit, range, description.  Declarations only.

One tree for all processes: `Config` is what a YAML file, the command line, ROS parameters and
Python fill (see `settings.py`).
"""

import dataclasses

from asyncppo_ros.errors import ConfigError
from asyncppo_ros.settings import setting


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """The actor-critic network and the distribution of its actions."""

    hidden_sizes: tuple[int, ...] = setting(
        (64, 64), 'Widths of the hidden layers of the policy.', low=1, high=4096)
    critic_hidden_sizes: tuple[int, ...] = setting(
        (64, 64), 'Widths of the hidden layers of the critic.', low=1, high=4096)
    activation: str = setting('tanh', 'Activation of the hidden layers.',
                              choices=('tanh', 'elu', 'relu'))
    initial_log_std: float = setting(
        -0.5, 'Log standard deviation of the pre-tanh action at the start.', low=-5.0, high=2.0)
    min_log_std: float = setting(-5.0, 'Lower clamp of the log standard deviation.',
                                 low=-20.0, high=2.0)
    max_log_std: float = setting(1.0, 'Upper clamp of the log standard deviation.',
                                 low=-5.0, high=5.0)
    privileged_critic: bool = setting(
        True, 'Let the critic see what only the simulation knows, where the task has such terms.')
    normalize_observation: bool = setting(
        True, 'Subtract the running mean of every observation and divide by its deviation.')
    observation_clip: float = setting(
        10.0, 'Normalized observations are clipped to this.', unit='deviations',
        low=1.0, high=1000.0)

    def __post_init__(self) -> None:
        """Check what involves two settings."""
        if not self.min_log_std <= self.initial_log_std <= self.max_log_std:
            raise ConfigError(
                f'policy.initial_log_std = {self.initial_log_std}: must lie between '
                f'policy.min_log_std = {self.min_log_std} and policy.max_log_std = '
                f'{self.max_log_std}')


@dataclasses.dataclass(frozen=True)
class PpoConfig:
    """One dual-clip PPO update."""

    learning_rate: float = setting(0.0003, 'Step size of Adam.', low=0.0, high=1.0)
    schedule: str = setting(
        'linear', 'How the learning rate changes: `linear` to 0 at env_steps, `adaptive` to hold '
        'desired_kl, `constant`.', choices=('linear', 'adaptive', 'constant'))
    desired_kl: float = setting(
        0.01, 'KL divergence per update that the adaptive learning rate holds.',
        low=0.000001, high=1.0)
    warmup_steps: int = setting(
        0, 'The learning rate rises linearly from 0 over the first so many transitions.',
        unit='control steps', low=0, high=10 ** 15)
    ess_learning_rate: bool = setting(
        False, 'Multiply the learning rate by the effective sample size of each batch, as a share '
        'of its transitions: the further lag has moved the policy, the smaller the steps.')
    target_kl: float = setting(
        0.0, 'No further epoch once the policy has moved so far in an update (KL divergence); '
        '0 = off.', low=0.0, high=100.0)
    epochs: int = setting(5, 'Passes over each batch.', low=1, high=100)
    recompute_advantages: bool = setting(
        False, 'Estimate advantages and value targets again before each epoch, with the critic '
        'as it then is.')
    minibatch_size: int = setting(512, 'Transitions per gradient step.', unit='transitions',
                                  low=1, high=10_000_000)
    objective: str = setting(
        'clipped', 'Around which policy the ratio is clipped: `clipped` = the one that acted; '
        '`decoupled` = the newest one, so that an update goes as far as without lag, which does '
        'not hold to a lag of some versions (docs/lag-study.md). Equal at zero lag. '
        '`misread_dual_clip` = min(ρA, clip(ρ)A, cA) with c = misread_clip, a form found in '
        'articles that stops learning: for the lag study only.',
        choices=('clipped', 'decoupled', 'misread_dual_clip'))
    max_behaviour_weight: float = setting(
        2.0, 'Cap of the weight newest / acting policy in the decoupled objective.',
        low=1.0, high=1000.0)
    clip_ratio: float = setting(0.2, 'Half-width ε of the ratio clip.', low=0.01, high=1.0)
    dual_clip: float = setting(
        3.0, 'Bound c on the ratio where the advantage is negative; must exceed 1 + clip_ratio; '
        '0 = off.', low=0.0, high=1000.0)
    dual_clip_above_lag: int = setting(
        -1, 'The dual clip bounds only samples whose policy lag is above this.', unit='versions',
        low=0, high=100_000, words={'always': -1})
    misread_clip: float = setting(
        0.6, 'c of the objective `misread_dual_clip`.', low=0.0, high=1.0)
    clip_schedule: str = setting(
        'constant', 'How clip_ratio changes: `linear` to 0 at env_steps, or `constant`.',
        choices=('constant', 'linear'))
    value_coefficient: float = setting(0.5, 'Weight of the value loss.', low=0.0, high=100.0)
    entropy_coefficient: float = setting(
        0.0, 'Weight of the entropy of the policy, of a Gaussian before the tanh.',
        low=0.0, high=10.0)
    entropy_schedule: str = setting(
        'constant', 'How entropy_coefficient changes: `linear` to 0 at env_steps, or `constant`.',
        choices=('constant', 'linear'))
    max_gradient_norm: float = setting(0.5, 'Gradients are scaled down to this norm.',
                                       low=0.001, high=1000.0)
    normalize_advantage: bool = setting(
        True, 'Subtract the mean of the advantages of a batch and divide by their deviation.')
    normalize_return: bool = setting(
        True, 'Let the critic learn value targets of mean 0 and deviation 1 (PopArt).')

    def __post_init__(self) -> None:
        """Refuse the form of dual clip that stops learning (DESIGN section 6)."""
        if 0.0 < self.dual_clip <= 1.0 + self.clip_ratio:
            raise ConfigError(
                f'learner.ppo.dual_clip = {self.dual_clip}: must exceed 1 + '
                f'learner.ppo.clip_ratio = {1.0 + self.clip_ratio}, or be 0 (off)')


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """The learner process."""

    batch_size: int = setting(
        8192, 'Transitions of one update; at least one chunk of every actor.',
        unit='transitions', low=1, high=100_000_000)
    discount: float = setting(0.99, 'Discount γ per control step.', low=0.0, high=1.0)
    gae_lambda: float = setting(0.95, 'λ of the generalized advantage estimate.',
                                low=0.0, high=1.0)
    advantage: str = setting(
        'gae', 'How advantages are estimated: `gae`, or `vtrace` = corrected for what lag has '
        'changed of the policy. At zero lag the value targets of both are equal.',
        choices=('gae', 'vtrace'))
    vtrace_max_ratio: float = setting(
        1.0, 'Cap ρ̄ of the ratio in V-trace.', low=1.0, high=1000.0)
    value_source: str = setting(
        'learner', 'Whose values advantages are made of: `learner` = the critic as it is when the '
        'chunk is consumed; `actor` = the one that travelled with the policy that acted.',
        choices=('learner', 'actor'))
    target_lag: int = setting(
        1, 'Permits hold the policy lag at or below this; 0 = actors wait for each update.',
        unit='versions', low=0, high=1000)
    max_policy_lag: int = setting(
        8, 'Chunks that are older when they are to be consumed are dropped and counted.',
        unit='versions', low=0, high=100_000)
    pacing: bool = setting(
        True, 'Permits hold the lag at target_lag; false = actors collect without limit, for '
        'experiments: what is too old is dropped and counted.')
    slowdown: float = setting(
        1.0, 'Every update takes this many times as long, for experiments on lag.',
        low=1.0, high=1000.0)
    log_chunks: bool = setting(
        False, 'Write lag and age of every consumed chunk to chunks.csv in the run folder.')
    publish_updates: int = setting(1, 'Publish the policy every so many updates.',
                                   unit='updates', low=1, high=1000)
    publish_seconds: float = setting(
        1.0, 'Publish the policy after this time even before publish_updates.',
        unit='s', low=0.01, high=3600.0)
    publish_max_hz: float = setting(100.0, 'Never publish faster than this.', unit='Hz',
                                    low=0.1, high=1000.0)
    max_bad_batches: int = setting(
        3, 'Batches refused in a row for a non-finite loss before the last good state is '
        'restored.', unit='batches', low=1, high=1000)
    checkpoint_seconds: float = setting(60.0, 'Time between checkpoints.', unit='s',
                                        low=1.0, high=86400.0)
    milestones: tuple[int, ...] = setting(
        (0,), 'Keep the first policy after each of these numbers of transitions, as '
        'policies/milestone-STEPS.safetensors; 0 = none.', unit='control steps', low=0,
        high=10 ** 15, nothing=(0,))
    keep_policies: int = setting(20, 'Policies kept in the run folder beside the newest.',
                                 low=1, high=100_000)
    threads: int = setting(0, 'Threads of torch.', low=1, high=1024, words={'auto': 0})
    device: str = setting('auto', 'Where updates run: auto takes CUDA where it is found.',
                          choices=('auto', 'cpu', 'cuda'))
    gradients: str = setting(
        'auto', 'What makes gradient steps: `numpy` = the derivative written out, for box actions '
        'on a CPU, several times as fast with small networks; `torch` = autograd; auto = numpy '
        'where it can and is faster.', choices=('auto', 'numpy', 'torch'))
    ranks: int = setting(
        1, 'Processes that share the gradient steps: each takes its part of every minibatch. With '
        'device cuda each needs a GPU of its own.', unit='processes', low=1, high=256)
    gradient_compression: str = setting(
        'none', 'How gradients travel between ranks: `none`, `bf16` = half the bytes, '
        '`powersgd` = matrices of low rank, `quantized` = 8 bits a number, between GPUs only.',
        choices=('none', 'bf16', 'powersgd', 'quantized'))
    powersgd_rank: int = setting(
        2, 'Rank of the matrices that PowerSGD makes of the gradient of a layer.', low=1, high=256)
    powersgd_start: int = setting(
        1000, 'So many gradient steps are made uncompressed before PowerSGD begins.',
        unit='gradient steps', low=2, high=10 ** 9)
    ppo: PpoConfig = dataclasses.field(default_factory=PpoConfig)

    def __post_init__(self) -> None:
        """Check what involves two settings."""
        if self.max_policy_lag < self.target_lag:
            raise ConfigError(
                f'learner.max_policy_lag = {self.max_policy_lag}: must be at least '
                f'learner.target_lag = {self.target_lag}')
        if self.publish_updates > self.target_lag + 1:
            raise ConfigError(
                f'learner.publish_updates = {self.publish_updates}: must be at most '
                f'learner.target_lag + 1 = {self.target_lag + 1}, or actors wait for a policy '
                'that is not published')
        if self.gradient_compression != 'none' and self.ranks == 1:
            raise ConfigError(
                f'learner.gradient_compression = {self.gradient_compression}: needs learner.ranks '
                'of at least 2; one rank sends no gradient')
        if self.ppo.minibatch_size < self.ranks:
            raise ConfigError(
                f'learner.ppo.minibatch_size = {self.ppo.minibatch_size}: must be at least '
                f'learner.ranks = {self.ranks}, a transition for each')
        if self.value_source == 'actor' and self.ppo.recompute_advantages:
            raise ConfigError(
                'learner.ppo.recompute_advantages = true: must be false where '
                'learner.value_source = actor, whose values do not change during an update')


@dataclasses.dataclass(frozen=True)
class ActorConfig:
    """An actor process."""

    source: str = setting(
        'simulation', 'Where transitions come from: `simulation`, or `robot` = the one behind the '
        'topics of `robot`.', choices=('simulation', 'robot'))
    reset: str = setting(
        'start_pose', 'How a robot is brought to the start of an episode: `start_pose` = its '
        'joints go there slowly, `service` = robot.reset_service is called, `prompt` = a person '
        'puts it there and presses Enter.', choices=('start_pose', 'service', 'prompt'))
    robot_namespace: str = setting(
        '', 'ROS namespace of the topics of the robot of an actor, whose own is that of its run.')
    weight: float = setting(
        1.0, 'Weight of the transitions of this source in the loss, relative to others.',
        low=0.0, high=1000.0)
    num_envs: int = setting(
        64, 'Simulations of each actor; auto = measured at the start of the run.',
        unit='environments', low=1, high=65536, words={'auto': 0})
    chunk_length: int = setting(32, 'Most control steps of one chunk (T).',
                                unit='control steps', low=1, high=65536)
    target_lag: int = setting(
        -1, 'Upper limit of the policy lag of this source alone; a chunk that gets older while '
        'it is collected is cut short.', unit='versions', low=0, high=1000,
        words={'learner': -1})
    max_policy_lag: int = setting(
        -1, 'Chunks of this source that are older are dropped and counted.', unit='versions',
        low=0, high=100_000, words={'learner': -1})
    max_crashes: int = setting(
        5, 'An actor that crashed so often in a row, each time within a minute, is quarantined: '
        'the others go on without it.', unit='crashes', low=1, high=1_000_000)
    random_episode_start: bool = setting(
        True, 'Cut the first episode of each environment at a random length, so that the '
        'episodes of a batch are not all of one age.')


@dataclasses.dataclass(frozen=True)
class RandomizationConfig:
    """How simulations differ from the model, from each other, and from step to step."""

    mass: float = setting(
        0.0, 'Mass and inertia of every body, times a factor within 1 ± this.', low=0.0,
        high=0.9)
    friction: float = setting(
        0.0, 'Sliding friction of all surfaces of an environment, times a factor within 1 ± '
        'this.', low=0.0, high=0.9)
    gains: float = setting(
        0.0, 'Stiffness and damping of every position or velocity actuator, times a factor '
        'within 1 ± this.', low=0.0, high=0.9)
    motor_strength: float = setting(
        0.0, 'Largest force of every actuator (gear of a motor), times a factor within 1 ± this.',
        low=0.0, high=0.9)
    joint_damping: float = setting(
        0.0, 'Damping and friction loss of every joint, times a factor within 1 ± this.', low=0.0,
        high=0.9)
    sensor_noise: float = setting(
        0.0, 'Noise of every measured observation term, as a multiple of its usual noise.',
        low=0.0, high=100.0)
    sensor_bias: float = setting(
        0.0, 'Offset of every measured number, new in each episode, uniform within ± this '
        'multiple of its usual noise.', low=0.0, high=100.0)
    observation_delay: int = setting(
        0, 'Measured terms are late by up to this, drawn for each episode.',
        unit='control steps', low=0, high=50)
    action_delay: int = setting(
        0, 'Actions take effect late by up to this, drawn for each episode.',
        unit='control steps', low=0, high=50)
    push_interval: float = setting(
        0.0, 'Mean time between pushes of a robot with a free base; 0 = none.', unit='s',
        low=0.0, high=3600.0)
    push_velocity: float = setting(
        0.5, 'Largest change of the horizontal velocity by a push, in each axis.', unit='m/s',
        low=0.0, high=10.0)
    initial_state: float = setting(
        0.0, 'Further noise of the joint positions at the start of an episode, uniform within ± '
        'this.', unit='rad|m', low=0.0, high=3.0)


@dataclasses.dataclass(frozen=True)
class InjectedLagConfig:
    """Lag that `train-local` makes on purpose, to study what it does; none elsewhere."""

    versions: int = setting(
        0, 'Every chunk is collected by the policy of so many updates ago.', unit='versions',
        low=0, high=10_000)
    gradient_steps: int = setting(
        0, 'Every chunk is collected by the policy of so many gradient steps ago, also from the '
        'midst of an update.', unit='gradient steps', low=0, high=1_000_000)
    spread: int = setting(
        0, 'Each chunk is older by a further lag drawn uniformly from 0 to this.',
        unit='versions', low=0, high=10_000)

    def __post_init__(self) -> None:
        """Check what involves two settings."""
        if self.gradient_steps and (self.versions or self.spread):
            raise ConfigError(
                f'injected_lag.gradient_steps = {self.gradient_steps}: must be 0 where '
                'injected_lag.versions or injected_lag.spread is given')


@dataclasses.dataclass(frozen=True)
class TransportConfig:
    """Chunks and permits between actors and the learner."""

    address: str = setting(
        'tcp://127.0.0.1:5577', 'ZeroMQ address that the learner binds and actors connect to.')
    heartbeat_s: float = setting(0.5, 'Time between signs of life of an actor.', unit='s',
                                 low=0.05, high=60.0)
    heartbeat_timeout_s: float = setting(
        10.0, 'An actor silent for longer loses its permits.', unit='s', low=0.5, high=3600.0)
    kind: str = setting(
        'auto', 'How chunks travel: `shm` = shared memory, only between processes of one host; '
        '`zmq` = sockets; `auto` = shared memory where the learner can reach it.',
        choices=('auto', 'shm', 'zmq'))
    observation_dtype: str = setting(
        'float32', 'What observations travel as over sockets: `float16` and `bfloat16` have half '
        'the bytes, and 11 and 8 bits of precision. float16 cuts what is beyond ±65504, and '
        'counts it. Memory that is shared keeps float32: nothing travels.',
        choices=('float32', 'float16', 'bfloat16'))
    policies: str = setting(
        'topic', 'How actors get policies: `topic` = the ROS 2 topic, and `zmq` where that is '
        'silent; `zmq` = always beside the permits.', choices=('topic', 'zmq'))
    policy_timeout_s: float = setting(
        5.0, 'When the policy topic brings nothing new for so long, though there is something, '
        'an alarm is raised.', unit='s', low=0.1, high=3600.0)
    keys: str = setting(
        '', 'Folder of keys from `asyncppo keys`: encrypts (CURVE) and signs policies (HMAC).')
    allow_plain_text: bool = setting(
        False, 'Allow an address that other hosts reach without encryption.')

    def __post_init__(self) -> None:
        """Check what involves two settings."""
        if self.heartbeat_timeout_s < 2.0 * self.heartbeat_s:
            raise ConfigError(
                f'transport.heartbeat_timeout_s = {self.heartbeat_timeout_s}: must be at least '
                f'twice transport.heartbeat_s = {self.heartbeat_s}')


@dataclasses.dataclass(frozen=True)
class RobotConfig:
    """A robot behind ROS 2 topics: what it tells, and what it listens to."""

    joint_state_topics: tuple[str, ...] = setting(
        ('joint_states',), 'Topics of sensor_msgs/JointState; each may tell some of the joints.')
    joint_names: tuple[str, ...] = setting(
        ('',), 'POLICY=ROBOT for each joint whose name on the robot is another than in the '
        'policy; empty = none.')
    imu_topic: str = setting(
        'imu/data', 'Topic of sensor_msgs/Imu, where the policy needs orientation or angular '
        'velocity of the base.')
    imu_rotation: tuple[float, ...] = setting(
        (1.0, 0.0, 0.0, 0.0), 'How the IMU is mounted: quaternion w, x, y, z that turns vectors '
        'of its frame into the frame of the base.', low=-1.0, high=1.0, length=4)
    odometry_topic: str = setting(
        '', 'Topic of nav_msgs/Odometry, for orientation and angular velocity of the base where '
        'imu_topic is empty.')
    command_topics: tuple[str, ...] = setting(
        ('velocity=cmd_vel:Twist', 'goal=goal_pose:PoseStamped'), 'NAME=TOPIC:TYPE for each '
        'command that the policy needs; TYPE is Twist or TwistStamped (forward, left [m/s], turn '
        '[rad/s]), PoseStamped (position [m]) or Float64MultiArray.')
    base_frame: str = setting(
        'base_link', 'Frame in which goals are meant; from other frames they are turned by tf2.')
    output: str = setting(
        'joint_trajectory', 'What commands are: `joint_trajectory` = '
        'trajectory_msgs/JointTrajectory, `forward_command` = std_msgs/Float64MultiArray, '
        '`joint_state` = sensor_msgs/JointState.',
        choices=('joint_trajectory', 'forward_command', 'joint_state'))
    output_topic: str = setting(
        '', 'Topic of the commands; empty = joint_trajectory_controller/joint_trajectory, '
        'forward_command_controller/commands or joint_command.')
    trajectory_time_s: float = setting(
        0.0, 'time_from_start of a joint trajectory: 0 = at once, as in training; control_dt = '
        'the controller interpolates.', unit='s', low=0.0, high=10.0)
    joint_order: tuple[str, ...] = setting(
        ('',), 'Joints of the forward_command_controller in its order, by their names on the '
        'robot; empty = its parameter `joints` is read.')
    urdf: str = setting('', 'URDF file with limits of the joints; empty = description_topic.')
    description_topic: str = setting(
        'robot_description', 'Topic of the URDF (std_msgs/String), where there is no urdf file; '
        'empty = no URDF: the limits in the policy alone hold.')
    reset_service: str = setting(
        '', 'Service (std_srvs/Trigger) that begins an episode, such as sim_robot/reset; for '
        'actor.reset = service.')


@dataclasses.dataclass(frozen=True)
class DeployConfig:
    """A policy in command of a robot, and what keeps it safe."""

    policy: str = setting(
        '', 'Policy file (.safetensors), run folder, or the name of one in pretrained/.')
    autostart: bool = setting(
        False, 'Configure and activate the node by itself, as soon as all checks pass.')
    live: bool = setting(
        False, 'Take newer policies of the same run from the topic `policy` while running.')
    live_gate: bool = setting(
        False, 'A live policy is taken only once its evaluation is known and is not worse than '
        'that of the running one.')
    live_tolerance: float = setting(
        0.05, 'By so much of its absolute value the evaluation of a live policy may lie below '
        'that of the running one.', low=0.0, high=10.0)
    blend_s: float = setting(
        0.5, 'A new policy takes over from the old one over this time.', unit='s', low=0.0,
        high=60.0)
    ramp_s: float = setting(
        2.0, 'After activation commands move from the measured pose to the policy over this '
        'time.', unit='s', low=0.0, high=60.0)
    start_tolerance: float = setting(
        0.3, 'At activation every joint is within this of the start pose of the policy.',
        unit='rad|m', low=0.0, high=100.0)
    start_speed: float = setting(
        0.5, 'Speed of the joints on the way to the start pose.', unit='rad/s|m/s', low=0.001,
        high=10.0)
    state_timeout_s: float = setting(
        0.1, 'A joint state or an orientation that is older trips the node.', unit='s', low=0.001,
        high=60.0)
    command_timeout_s: float = setting(
        0.5, 'A velocity command that is older counts as zero; 0 = never.', unit='s', low=0.0,
        high=3600.0)
    goal_timeout_s: float = setting(
        0.0, 'A goal that is older trips the node; 0 = never.', unit='s', low=0.0, high=86400.0)
    clock_tolerance_s: float = setting(
        0.5, 'A state whose stamp is further from the clock is refused; unstamped ones are not '
        'compared.', unit='s', low=0.001, high=3600.0)
    frozen_s: float = setting(
        1.0, 'A sensor that gives exactly the same numbers for so long trips the node; 0 = '
        'never.', unit='s', low=0.0, high=3600.0)
    max_deadline_misses: int = setting(
        5, 'So many missed control steps in a row trip the node.', unit='control steps', low=1,
        high=10_000)
    max_tilt: float = setting(
        1.2, 'A base that is tilted further trips the node; 0 = never.', unit='rad', low=0.0,
        high=3.2)
    max_speed: float = setting(
        0.0, 'A joint that is measured faster trips the node; 0 = 1.2 times the velocity limit '
        'of the URDF, where there is one.', unit='rad/s|m/s', low=0.0, high=10_000.0)
    rate_limit: float = setting(
        0.0, 'Largest change of a command per second, beside the limits in the policy; 0 = those '
        'alone.', unit='1/s', low=0.0, high=100_000.0)
    damping: float = setting(
        1.0, 'A tripped effort command is minus this times the measured velocity.',
        unit='N m s/rad|N s/m', low=0.0, high=10_000.0)
    estop_topic: str = setting(
        '', 'Topic of std_msgs/Bool that must keep saying false: true, or silence, is an '
        'emergency stop; empty = only the service ~/estop.')
    estop_timeout_s: float = setting(
        0.5, 'Silence of estop_topic that counts as an emergency stop.', unit='s', low=0.01,
        high=60.0)
    allow_unwatched: bool = setting(
        False, 'Allow velocity and effort through a forward_command_controller, which holds the '
        'last command for ever when this node dies.')
    allow_other_publishers: bool = setting(
        False, 'Activate although another node publishes on the topic of the commands.')


@dataclasses.dataclass(frozen=True)
class SimRobotConfig:
    """A simulated robot behind the topics of a real one, and how it differs from its model."""

    lockstep: bool = setting(
        False, 'Simulated time stands still until the command of each control step has come; '
        'false = real time.')
    ask: bool = setting(
        False, 'Also be the operator: publish what the task asks for in each episode, score it, '
        'and hold the robot when it has ended.')
    publish_clock: bool = setting(
        False, 'Publish /clock; always on in lockstep.')
    speed: float = setting(1.0, 'Simulated seconds per second, where time is not in lockstep.',
                           low=0.01, high=100.0)
    state_rate: float = setting(
        200.0, 'Joint states and IMU per simulated second; in lockstep once per control step.',
        unit='Hz', low=1.0, high=10_000.0)
    sensor_noise: float = setting(
        0.0, 'Noise of all sensors, as a multiple of the usual noise of the observation terms.',
        low=0.0, high=100.0)
    state_latency_s: float = setting(0.0, 'States are published late by this.', unit='s', low=0.0,
                                     high=10.0)
    command_latency_s: float = setting(0.0, 'Commands take effect late by this.', unit='s',
                                       low=0.0, high=10.0)
    drop: float = setting(0.0, 'Share of state messages that are lost.', low=0.0, high=1.0)
    shuffle_joints: bool = setting(
        False, 'Tell the joints in another order, which changes with every message.')
    odometry: bool = setting(False, 'Publish nav_msgs/Odometry of a robot with a free base.')
    command_timeout_s: float = setting(
        0.0, 'Without a command for so long the joints hold their pose, or move and push no '
        'more; 0 = the last command holds for ever.', unit='s', low=0.0, high=60.0)
    seed: int = setting(1_000_003, 'Seed of the starts of episodes and of the noise.', low=0,
                        high=2 ** 31 - 1)
    mass: float = setting(1.0, 'Masses and inertias, times this.', low=0.1, high=10.0)
    friction: float = setting(1.0, 'Sliding friction of all surfaces, times this.', low=0.0,
                              high=10.0)
    gains: float = setting(1.0, 'Stiffness and damping of the position and velocity controllers, '
                           'times this.', low=0.1, high=10.0)
    motor_strength: float = setting(1.0, 'Largest force of every actuator, times this.', low=0.1,
                                    high=10.0)
    joint_damping: float = setting(1.0, 'Damping and friction loss of every joint, times this.',
                                   low=0.0, high=100.0)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Deterministic evaluation, in a process of its own."""

    episodes: int = setting(20, 'Episodes of each evaluation while training.', low=1,
                            high=100_000)
    final_episodes: int = setting(100, 'Episodes of the evaluation at the end.', low=1,
                                  high=100_000)
    every_seconds: float = setting(20.0, 'Time between the starts of two evaluations.', unit='s',
                                   low=1.0, high=86400.0)
    seed: int = setting(1_000_003, 'Seed of the evaluation episodes.', low=0, high=2 ** 31 - 1)


@dataclasses.dataclass(frozen=True)
class Config:
    """The whole settings tree, which every node declares."""

    task: str = setting('reach', 'What is learned: reach, cartpole_swingup, quadruped_walk, '
                        'HalfCheetah-v5, Hopper-v5, Walker2d-v5, Ant-v5, Humanoid-v5, '
                        'gymnasium:ID, or my_pkg.my_module:MyTask.')
    seed: int = setting(0, 'Seed of all random numbers.', low=0, high=2 ** 31 - 1)
    env_steps: int = setting(
        1_000_000, 'Training ends after this many transitions were consumed.',
        unit='control steps', low=1, high=10 ** 15)
    run_dir: str = setting('', 'Folder of the run; empty = runs/TASK-DATE-TIME.')
    num_actors: int = setting(
        0, 'Actor processes on this host; auto = measured at the start of the run (as many as '
        'keep the learner busy, and as the cores allow), and then more or fewer as the load asks '
        'for.', low=1, high=4096, words={'auto': 0})
    max_actors: int = setting(
        0, 'Most actor processes on this host where num_actors = auto; 0 = as many as '
        'learner.batch_size and the memory have room for.', low=0, high=4096)
    actors_at_start: int = setting(
        0, 'Actor processes with which num_actors = auto begins; 0 = measured when the run is '
        'made, which writes what it found here.', low=0, high=4096)
    actor: ActorConfig = dataclasses.field(default_factory=ActorConfig)
    randomization: RandomizationConfig = dataclasses.field(default_factory=RandomizationConfig)
    policy: PolicyConfig = dataclasses.field(default_factory=PolicyConfig)
    learner: LearnerConfig = dataclasses.field(default_factory=LearnerConfig)
    injected_lag: InjectedLagConfig = dataclasses.field(default_factory=InjectedLagConfig)
    transport: TransportConfig = dataclasses.field(default_factory=TransportConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    robot: RobotConfig = dataclasses.field(default_factory=RobotConfig)
    deploy: DeployConfig = dataclasses.field(default_factory=DeployConfig)
    sim_robot: SimRobotConfig = dataclasses.field(default_factory=SimRobotConfig)
