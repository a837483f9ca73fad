"""Starts resp-server and reads its lines."""

import os
import queue
import re
import socket
import subprocess
import threading
import time

LIMIT = 30


class Server:
    """The program resp-server with these options."""

    def __init__(self, *options):
        end = time.monotonic() + LIMIT
        while True:
            self.address = self._start(options)
            if self.address != "end":
                break
            # The port of an ended server may be in use for a while, by a client that dialled from it.
            assert time.monotonic() < end, f"resp-server {options} does not start"
            self.end()
        self.port = int(self.address.rsplit(":")[-1])

    def _start(self, options):
        self.process = subprocess.Popen(
            [os.environ["RESP_SERVER"], *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self.line().removeprefix("listening on ")

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        return self.line()

    def stats(self):
        return {name: int(count) for name, count in re.findall(r"(\w+): (\d+)", self.ask("stats"))}

    def until(self, condition):
        """Asks for the counters until they are as expected."""
        end = time.monotonic() + LIMIT
        while not condition(self.stats()):
            assert time.monotonic() < end, self.stats()

    def connect(self):
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), LIMIT)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()
