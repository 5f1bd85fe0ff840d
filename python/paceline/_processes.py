"""Worker processes of a run on this machine: each runs `_worker` of this package."""
import json
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Dict, List, Optional

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_START = ("import sys; sys.path.insert(0, %r); from paceline import _worker; "
          "sys.exit(_worker.main())" % _PACKAGE)
_PATIENCE_S = 5
_log = logging.getLogger("paceline.worker")


class Workers:
    """Starts workers, counts those that have ended, and ends the others with the run."""

    def __init__(self, records: Dict[str, dict], key: Optional[str]):
        self._records, self._key = records, key
        self._alive: List[subprocess.Popen] = []
        self._lost = 0
        self._lock = threading.Lock()
        self._ending = False
        self._stderr = -1  # the writing end of a pipe; `_relay` reads the other
        self._relay: Optional[threading.Thread] = None

    def _open_relay(self) -> None:
        """Warnings of workers go to the log, until the run ends: then they miss their driver."""
        if self._relay:
            return
        reading, self._stderr = os.pipe()

        def relay():
            with os.fdopen(reading, errors="replace") as lines:
                for line in lines:
                    if not self._ending:
                        _log.warning("%s", line.rstrip())
        self._relay = threading.Thread(target=relay, name="paceline-relay", daemon=True)
        self._relay.start()

    def _start_one(self, address: str) -> None:
        files = [told[part] for told in self._records.values() for part in ("values", "labels")
                 if told[part] is not None]
        order = {"driver": address, "key": self._key, "records": self._records}
        environment = dict(os.environ)
        # Threads that wait would spin on cores that other workers need.
        environment.setdefault("OMP_WAIT_POLICY", "passive")
        # A session of its own: Ctrl-C on the terminal is for the driver, which ends the run.
        process = subprocess.Popen([sys.executable, "-c", _START], stdin=subprocess.PIPE,
                                   stderr=self._stderr, env=environment, pass_fds=files,
                                   start_new_session=True)
        self._alive.append(process)
        assert process.stdin is not None  # it is a pipe
        process.stdin.write(json.dumps(order).encode())
        process.stdin.close()

    def _reap(self) -> None:
        alive = [process for process in self._alive if process.poll() is None]
        self._lost += len(self._alive) - len(alive)
        self._alive = alive

    def start(self, count: int, address: str) -> int:
        """0, or -1 where not all could be started."""
        with self._lock:
            self._reap()
            try:
                self._open_relay()
                for _ in range(count):
                    self._start_one(address)
            except OSError as why:
                _log.error("a worker cannot be started: %s", why)
                return -1
        return 0

    def lost(self) -> int:
        """How many have ended."""
        with self._lock:
            self._reap()
            return self._lost

    def end(self) -> None:
        """Wait for those that are left, then kill them."""
        until = time.monotonic() + _PATIENCE_S
        self._ending = True
        with self._lock:
            for process in self._alive:
                try:
                    process.wait(max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._alive = []
        if self._relay:
            os.close(self._stderr)
            self._relay.join(_PATIENCE_S)
