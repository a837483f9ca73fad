"""Starts the real server on a free port, and ends it."""

import ctypes
import faulthandler
import os
import queue
import re
import shlex
import signal
import subprocess
import threading

# Long enough for a loaded machine; nothing waits this long when all is well.
PATIENCE_SECONDS = 30

# A test that hangs shows where, and the run goes on with the next suite.
faulthandler.dump_traceback_later(240, exit=True)

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Server:
    """`switchboard serve`, or another command that listens, as a context manager.

    `address` is `127.0.0.1:PORT`. Leaving ends the process with SIGKILL unless a test has ended it before.
    """

    def __init__(self, *arguments, command="serve"):
        self._command = [*server_command(), command, "--listen", "127.0.0.1:0", *arguments]

    def __enter__(self):
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.address = self._read_address()
        except BaseException:
            self.__exit__()
            raise
        self.port = int(self.address.rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()

    def interrupt(self):
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def reload_certificates(self):
        """Sends SIGHUP, which makes the server read its certificates again."""
        self.process.send_signal(signal.SIGHUP)

    def exit_code(self):
        """Waits for the server to end by itself."""
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self):
        # Reads on to the end: a full pipe would block the server.
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def read_line(self, start):
        """The rest of the next line that starts so."""
        return self._find(re.escape(start) + r"(.*)")

    def _read_address(self):
        return self._find(r"listening on https?://(127\.0\.0\.1:\d+)")

    def _find(self, pattern):
        seen = []
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"no {pattern} from {self._command}, only {seen}") from None
            if line is None:
                raise AssertionError(f"{self._command} ended after {seen}")
            found = re.search(pattern, line)
            if found:
                return found[1]
            seen.append(line)


def server_command():
    command = os.environ.get("SWITCHBOARD_BIN")
    if not command:
        raise SystemExit("SWITCHBOARD_BIN is not set: run `cargo xtask test --only interop-grpc`")
    return [command] if os.path.exists(command) else shlex.split(command)


def end_with_parent():
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
