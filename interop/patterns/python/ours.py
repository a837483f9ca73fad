"""Starts request-patterns and reads its lines."""

import os
import queue
import subprocess
import threading

LIMIT = 30


class Ours:
    """A component of ours in a process of its own, which has been asked whether it is ready."""

    def __init__(self, *arguments):
        command = [os.environ["REQUEST_PATTERNS"], *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.endpoints = []
        if arguments[0] not in ("client", "lazy", "freelance-client"):
            word, *self.endpoints = self.line().split(" ")
            assert word == "ready", word

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def read(self):
        """Returns the word of a line, and its frames."""
        word, *frames = self.line().split(" ")
        return word, [b"" if frame == "-" else bytes.fromhex(frame) for frame in frames]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
