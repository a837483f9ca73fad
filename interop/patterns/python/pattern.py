"""Starts state-patterns and reads its lines, and sockets of libzmq with a time limit."""

import os
import queue
import subprocess
import threading
import time
import unittest

import zmq

LIMIT = 20


class Peer:
    """A pattern of this workspace in a process of its own."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [os.environ["STATE_PATTERNS"], *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def ready(self):
        name, *endpoints = self.line().split(" ")
        assert name == "ready", (name, endpoints)
        return endpoints

    def say(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        return self

    def ask(self, *words):
        return self.say(*words).line()

    def until(self, expected, *words):
        """Repeats a command until its answer is the expected one."""
        end = time.monotonic() + LIMIT
        while (answer := self.ask(*words)) != expected:
            assert time.monotonic() < end, (words, answer, expected)
            time.sleep(0.02)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Case(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.addCleanup(self.context.destroy, linger=0)

    def peer(self, *arguments):
        peer = Peer(*arguments)
        self.addCleanup(peer.end)
        return peer

    def socket(self, kind):
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.RCVTIMEO, LIMIT * 1000)
        socket.setsockopt(zmq.SNDTIMEO, LIMIT * 1000)
        return socket

    def connect(self, kind, endpoint):
        socket = self.socket(kind)
        socket.connect(endpoint)
        return socket

    def bind(self, kind):
        socket = self.socket(kind)
        socket.bind("tcp://127.0.0.1:*")
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)
