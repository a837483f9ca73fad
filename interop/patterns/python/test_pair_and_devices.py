"""Binary Star with a peer of libzmq, and devices between sockets of libzmq."""

import time

import zmq
from pattern import LIMIT, Case

PRIMARY, BACKUP, ACTIVE, PASSIVE = b"1", b"2", b"3", b"4"


class BinaryStarTest(Case):
    """The peer sends the numbers of the guide's bstar."""

    def start(self, role):
        self.node = self.peer("binary-star", role)
        (endpoint,) = self.node.ready()
        self.states = self.connect(zmq.SUB, endpoint)
        self.states.setsockopt(zmq.SUBSCRIBE, b"")
        self.own, own = self.bind(zmq.XPUB)
        self.assertEqual(self.node.ask("connect", own), "connected")
        self.assertEqual(self.own.recv(), b"\x01")

    def until(self, own, expected):
        """Sends a state until the node has the expected one."""
        end = time.monotonic() + LIMIT
        while self.states.recv() != expected:
            self.assertLess(time.monotonic(), end)
            self.own.send(own)

    def test_primary(self):
        self.start("primary")
        self.until(BACKUP, ACTIVE)
        self.assertEqual(self.node.ask("admit"), "admitted")
        self.own.send(PASSIVE)
        self.assertEqual(self.node.ask("state"), "state 3")

    def test_backup_takes_over(self):
        self.start("backup")
        self.until(ACTIVE, PASSIVE)
        self.assertIn("error", self.node.ask("admit"))
        self.node.until("admitted", "admit")
        self.until(PASSIVE, ACTIVE)

    def test_backup_serves_when_the_primary_restarts(self):
        self.start("backup")
        self.until(ACTIVE, PASSIVE)
        self.until(PRIMARY, ACTIVE)


class DeviceTest(Case):
    def test_queue(self):
        frontend, backend = self.peer("queue").ready()
        client, worker = self.connect(zmq.REQ, frontend), self.connect(zmq.REP, backend)
        client.send_multipart([b"one", b"two"])
        self.assertEqual(worker.recv_multipart(), [b"one", b"two"])
        worker.send(b"reply")
        self.assertEqual(client.recv(), b"reply")

    def test_forwarder(self):
        frontend, backend = self.peer("forwarder").ready()
        publisher, subscriber = self.connect(zmq.XPUB, frontend), self.connect(zmq.SUB, backend)
        subscriber.setsockopt(zmq.SUBSCRIBE, b"a")
        self.assertEqual(publisher.recv(), b"\x01a")
        publisher.send(b"b")
        publisher.send(b"a")
        self.assertEqual(subscriber.recv(), b"a")

    def test_streamer(self):
        frontend, backend = self.peer("streamer").ready()
        push, pull = self.connect(zmq.PUSH, frontend), self.connect(zmq.PULL, backend)
        for number in range(100):
            push.send(b"%d" % number)
        self.assertEqual([pull.recv() for _ in range(100)], [b"%d" % number for number in range(100)])
