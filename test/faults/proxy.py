"""A network that can be cut: a TCP proxy in a thread."""

import selectors
import socket
import threading


class Proxy:
    """
    Forward connections to an address, unless cut.

    Parameters
    ----------
    target : str
        ``tcp://HOST:PORT``.

    """

    def __init__(self, target):
        host, _, port = target.removeprefix('tcp://').rpartition(':')
        self._target = (host, int(port))
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.address = f'tcp://127.0.0.1:{self._listener.getsockname()[1]}'
        self.forwarded = 0
        self._pairs = {}
        self._silent = threading.Event()
        self._refusing = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def swallow(self):
        """Cut without a word: what is sent is lost in silence, connections stay."""
        self._silent.set()

    def hang_up(self):
        """Cut with a word: connections end, and no new one is made."""
        self._refusing.set()
        with self._lock:
            for end in list(self._pairs):
                self._drop(end)

    def heal(self):
        """
        Let everything through again.

        A stream that lost bytes is of no use, so connections that were cut in silence end here.
        """
        if self._silent.is_set():
            with self._lock:
                for end in list(self._pairs):
                    self._drop(end)
        self._silent.clear()
        self._refusing.clear()

    def close(self):
        self._closing.set()
        self._thread.join()
        for end in [*self._pairs, self._listener]:
            end.close()
        self._selector.close()

    def _run(self):
        while not self._closing.is_set():
            for key, _ in self._selector.select(0.02):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj in self._pairs:
                        self._forward(key.fileobj)

    def _accept(self):
        near, _ = self._listener.accept()
        try:
            if self._refusing.is_set():
                raise ConnectionRefusedError
            far = socket.create_connection(self._target, timeout=5.0)
        except OSError:
            near.close()
            return
        self._pairs[near], self._pairs[far] = far, near
        for end in (near, far):
            self._selector.register(end, selectors.EVENT_READ)

    def _forward(self, end):
        try:
            data = end.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            if not self._silent.is_set():
                self._pairs[end].sendall(data)
                self.forwarded += len(data)
        except OSError:
            self._drop(end)

    def _drop(self, end):
        if end not in self._pairs:
            return  # went with its other end
        other = self._pairs.pop(end)
        del self._pairs[other]
        for gone in (end, other):
            self._selector.unregister(gone)
            gone.close()
