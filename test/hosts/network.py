"""Hosts made of namespaces: a name, a network and a /dev/shm of their own, joined by a switch."""

import contextlib
import functools
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PREFIX = 'asyncppo-test'
# A test may have a network of its own beside that of its module.
NUMBERS = itertools.count()
# The shell that a command on a host begins as.  What lies in the folders that are hidden is on
# the disk of another host.
ENTER = ('echo "$1" > /proc/sys/kernel/hostname; mount -t tmpfs tmpfs /dev/shm || exit 97; '
         'for folder in $2; do mount -t tmpfs tmpfs "$folder" || exit 97; done; '
         'shift 2; exec "$@"')


@functools.cache
def why_not():
    """Say why hosts cannot be made here; '' = they can."""
    if sys.platform != 'linux' or os.geteuid() != 0:
        return 'network namespaces need Linux and root'
    name = f'{PREFIX}-{os.getpid()}-probe'
    try:
        ip('netns', 'add', name)
        try:
            ip('-n', name, 'link', 'add', 'probe0', 'type', 'bridge')
            ip('-n', name, 'link', 'add', 'probe1', 'type', 'veth', 'peer', 'name', 'probe2')
            subprocess.run([*entering(name, 'probe'), 'true'], check=True, capture_output=True)
        finally:
            ip('netns', 'del', name)
    except FileNotFoundError as error:
        return f'{error.filename} is missing (package iproute2 or util-linux)'
    except subprocess.CalledProcessError as error:
        text = error.stderr if isinstance(error.stderr, str) else error.stderr.decode()
        return f'no network namespaces here: {text.strip() or error}'
    return ''


def ip(*arguments):
    """Run ``ip``."""
    return subprocess.run(['ip', *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout


def entering(namespace, hostname, hidden=()):
    """Give what stands before a command that runs on a host."""
    return ['ip', 'netns', 'exec', namespace, 'unshare', '--uts', '--mount', '--ipc', 'sh', '-c',
            ENTER, 'sh', hostname, ' '.join(map(str, hidden))]


def namespace_of(owner, name):
    """Give the name that the system has for a host, or for the switch, of a network."""
    return f'{PREFIX}-{owner}-{name}'


class Network:
    """
    Hosts on one switch, as a context manager: nothing is left of them after it.

    Parameters
    ----------
    addresses : mapping from str to str
        Names of hosts to their addresses in one network of 24 bits.
    hidden : mapping from str to path
        Folders, without spaces in their names, whose files a host does not have.
    slow : mapping from str to dict
        Hosts whose packets are late or lost, with the arguments of `Link`.

    Attributes
    ----------
    owner : str
        In the names of its namespaces: this process, and which of its networks it is.

    """

    def __init__(self, addresses, hidden=None, slow=None):
        self.owner = f'{os.getpid()}.{next(NUMBERS)}'
        self._switch = namespace_of(self.owner, 'switch')
        self._addresses, self._hidden, self._slow = addresses, hidden or {}, slow or {}
        self.hosts = {}

    def __enter__(self):
        sweep()
        try:
            ip('netns', 'add', self._switch)
            ip('-n', self._switch, 'link', 'add', 'switch', 'type', 'bridge')
            ip('-n', self._switch, 'link', 'set', 'switch', 'up')
            for name, address in self._addresses.items():
                self.hosts[name] = Host(name, address, self.owner, self._hidden.get(name, ()),
                                        self._slow.get(name))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts.values():
            host.close()
        sweep([self.owner])

    def __getitem__(self, name):
        return self.hosts[name]

    def without_multicast(self):
        """Let the switch drop what is sent to a group, as many wireless networks do."""
        for host in self.hosts.values():
            ip('-n', self._switch, 'link', 'set', host.port, 'type', 'bridge_slave',
               'mcast_flood', 'off')


class Host:
    """
    One host.

    Attributes
    ----------
    name, address : str
    port : str
        Its port at the switch.
    processes : list of Popen

    """

    def __init__(self, name, address, owner, hidden=(), slow=None):
        self.name, self.address, self.port = name, address, f'to-{name}'
        self.processes = []
        self._namespace, self._switch = (namespace_of(owner, part) for part in (name, 'switch'))
        self._hidden = hidden
        ip('netns', 'add', self._namespace)
        ip('-n', self._namespace, 'link', 'set', 'lo', 'up')
        if slow is None:
            ip('-n', self._switch, 'link', 'add', self.port, 'type', 'veth',
               'peer', 'name', 'eth0', 'netns', self._namespace)
        else:
            self._join_slowly(slow)
        ip('-n', self._switch, 'link', 'set', self.port, 'master', 'switch', 'up')
        ip('-n', self._namespace, 'address', 'add', f'{address}/24', 'dev', 'eth0')
        ip('-n', self._namespace, 'link', 'set', 'eth0', 'up')

    @property
    def entering(self):
        """What stands before a command that runs there; its process number stays the same."""
        return entering(self._namespace, self.name, self._hidden)

    def start(self, command, output, environment=None):
        """Start a command whose output goes to a file."""
        with open(output, 'ab') as file:
            process = subprocess.Popen(
                [*self.entering, *map(str, command)], stdin=subprocess.DEVNULL,
                stdout=file, stderr=file, start_new_session=True, env=environment)
        self.processes.append(process)
        return process

    def run(self, command, timeout=60.0, environment=None):
        """Run a command to its end."""
        return subprocess.run([*self.entering, *map(str, command)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, env=environment)

    def cut(self):
        """Pull the cable: nobody is told, packets go nowhere."""
        ip('-n', self._switch, 'link', 'set', self.port, 'down')

    def heal(self):
        """Put the cable back."""
        ip('-n', self._switch, 'link', 'set', self.port, 'up')

    def close(self):
        """End what runs there."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _join_slowly(self, slow):
        arguments = [text for name, value in slow.items() for text in (f'--{name}', str(value))]
        link = subprocess.Popen(
            [sys.executable, HERE / 'slow_link.py', self._namespace, 'eth0', self._switch,
             self.port, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.processes.append(link)
        assert link.stdout.readline() == 'ready\n'


def sweep(owners=None):
    """Remove the namespaces of networks (of processes that are gone), and what runs in them."""
    for name in (line.split()[0] for line in ip('netns', 'list').splitlines()):
        if not name.startswith(f'{PREFIX}-'):
            continue
        owner = name.removeprefix(f'{PREFIX}-').partition('-')[0]
        process = pathlib.Path('/proc', owner.partition('.')[0])
        if owner in owners if owners else not process.exists():
            end_all_in(name)
            ip('netns', 'del', name)


def end_all_in(namespace, timeout=5.0):
    """Kill the processes of a namespace and wait until they are gone."""
    deadline = time.monotonic() + timeout
    while (pids := ip('netns', 'pids', namespace).split()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.02)
