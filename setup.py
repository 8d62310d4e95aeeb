"""The package's metadata: it lies here because Humble's setuptools ignores [project]."""

import os

from setuptools import find_packages, setup

package_name = 'asyncppo_ros'


def tree(folder):
    """
    List the files of a folder as data_files entries, one per directory.

    Directories and files whose name starts with a dot or that Python made are left out.
    """
    entries = []
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(('.', '__')))
        files = [os.path.join(directory, name) for name in sorted(names)
                 if not name.startswith('.') and not name.endswith('.pyc')]
        if files:
            entries.append((os.path.join('share', package_name, directory), files))
    return entries


def ros_wheels(distro):
    """Name the wheels of one ROS 2 distribution (x86-64 Linux, Python 3.10 to 3.13)."""
    names = ('rclpy', 'rmw-fastrtps-cpp', 'std-msgs', 'std-srvs', 'sensor-msgs', 'geometry-msgs',
             'trajectory-msgs', 'nav-msgs', 'diagnostic-msgs')
    return [f'ros-{distro}-{name}' for name in names]


setup(
    name=package_name,
    version='0.1.0',
    description='Asynchronous PPO for robots: MuJoCo actors, ZeroMQ chunks, a policy on a ROS 2 '
                'topic.',
    long_description='Asynchronous PPO for robots: MuJoCo actors stream experience over ZeroMQ to '
                     'one learner, which publishes each new policy on a ROS 2 topic.',
    license='Apache-2.0',
    author='asyncppo_ros maintainers',
    author_email='maintainers@asyncppo-ros.dev',
    maintainer='asyncppo_ros maintainers',
    maintainer_email='maintainers@asyncppo-ros.dev',
    keywords=['ROS', 'reinforcement learning', 'PPO', 'MuJoCo'],
    classifiers=[
        'Intended Audience :: Developers',
        'Programming Language :: Python :: 3',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
    packages=find_packages(exclude=['test*']),
    data_files=[
        ('share/ament_index/resource_index/packages', [os.path.join('resource', package_name)]),
        ('share/' + package_name, ['package.xml']),
        *tree('launch'),
        *tree('config'),
        *tree('models'),
        *tree('pretrained'),
    ],
    zip_safe=False,
    python_requires='>=3.10',
    install_requires=['setuptools', 'numpy', 'PyYAML'],
    extras_require={
        # imageio: the MuJoCo environments of Gymnasium import it
        'train': ['torch', 'mujoco>=3.2', 'gymnasium>=1.0', 'pyzmq', 'safetensors', 'tensorboard',
                  'matplotlib', 'imageio'],
        'ros-jazzy': ros_wheels('jazzy'),
        'ros-kilted': ros_wheels('kilted'),
        'onnx': ['onnx', 'onnxruntime'],
        'ray': ['ray'],
        'tune': ['optuna'],
        'test': ['optuna', 'onnx', 'onnxruntime', 'pytest', 'pytest-timeout', 'hypothesis', 'ruff',
                 'mypy', 'types-PyYAML'],
    },
    entry_points={
        'console_scripts': [
            'asyncppo = asyncppo_ros.tools.cli:main',
            'learner_node = asyncppo_ros.nodes.main:learner',
            'actor_node = asyncppo_ros.nodes.main:actor',
            'evaluator_node = asyncppo_ros.nodes.main:evaluator',
            'policy_node = asyncppo_ros.nodes.main:policy',
            'sim_robot_node = asyncppo_ros.nodes.main:sim_robot',
            'supervisor = asyncppo_ros.nodes.main:supervisor',
            'plots = asyncppo_ros.nodes.main:plots',
        ],
    },
)
