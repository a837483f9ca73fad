"""RFC 12 with programs of libzmq, written from the document: a client at our server, and a server for our client."""

import struct
import threading
import uuid

import zmq
from pattern import Case


def number(value):
    return struct.pack(">Q", value)


class Client:
    """A client that keeps the table and notes each message."""

    def __init__(self, case, endpoints, subtree=b""):
        snapshot, updates, collector = endpoints
        self.updates = case.connect(zmq.SUB, updates)
        self.updates.setsockopt(zmq.SUBSCRIBE, subtree)
        self.updates.setsockopt(zmq.SUBSCRIBE, b"HUGZ")
        self.publisher = case.socket(zmq.XPUB)
        self.publisher.connect(collector)
        assert self.publisher.recv() == b"\x01"
        assert self.updates.recv_multipart() == [b"HUGZ", number(0), b"", b"", b""]
        self.snapshot = case.connect(zmq.DEALER, snapshot)
        self.snapshot.send_multipart([b"ICANHAZ?", subtree])
        self.table = {}
        while True:
            key, sequence, ident, properties, value = self.snapshot.recv_multipart()
            assert (ident, properties) == (b"", b"")
            (self.sequence,) = struct.unpack(">Q", sequence)
            if key == b"KTHXBAI":
                assert value == subtree
                return
            self.table[key] = value

    def set(self, key, value, properties=b""):
        ident = uuid.uuid4().bytes
        self.publisher.send_multipart([key, number(0), ident, properties, value])
        return ident

    def update(self):
        while True:
            frames = self.updates.recv_multipart()
            if frames[0] == b"HUGZ":
                continue
            key, sequence, ident, properties, value = frames
            (sequence,) = struct.unpack(">Q", sequence)
            if sequence <= self.sequence:
                continue
            self.sequence = sequence
            if value:
                self.table[key] = value
            else:
                self.table.pop(key, None)
            return key, ident, properties, value


class ServerTest(Case):
    def setUp(self):
        super().setUp()
        self.server = self.peer("clone-server")
        self.endpoints = self.server.ready()

    def test_snapshot_then_updates(self):
        for value in range(5):
            self.server.ask("set", f"/a/{value}", f"v{value}")
        self.server.ask("set", "/b/0", "other")
        client = Client(self, self.endpoints)
        self.assertEqual(len(client.table), 6)
        self.assertEqual((client.table[b"/a/3"], client.sequence), (b"v3", 6))
        self.server.ask("set", "/a/3", "new")
        self.assertEqual(client.update()[::3], (b"/a/3", b"new"))

    def test_subtree(self):
        self.server.ask("set", "/a/1", "x")
        self.server.ask("set", "/b/1", "x")
        client = Client(self, self.endpoints, b"/a/")
        self.assertEqual(client.table, {b"/a/1": b"x"})
        self.server.ask("set", "/b/2", "x")
        self.server.ask("set", "/a/2", "x")
        self.assertEqual(client.update()[0], b"/a/2")

    def test_update_of_a_client_reaches_another(self):
        first, second = Client(self, self.endpoints), Client(self, self.endpoints)
        ident = first.set(b"/k", b"v", b"origin=python\n")
        for client in (first, second):
            self.assertEqual(client.update(), (b"/k", ident, b"origin=python\n", b"v"))
        self.assertEqual(self.server.ask("get", "/k"), "value v")
        second.set(b"/k", b"")
        self.assertEqual(first.update()[::3], (b"/k", b""))
        self.assertEqual(self.server.ask("get", "/k"), "none")

    def test_time_to_live(self):
        client = Client(self, self.endpoints)
        client.set(b"/ephemeral", b"v", b"ttl=1\n")
        self.assertEqual(client.update()[2:], (b"ttl=1\n", b"v"))
        self.assertEqual(client.update()[::3], (b"/ephemeral", b""))

    def test_our_client_and_theirs_share_a_table(self):
        theirs = Client(self, self.endpoints)
        ours = self.peer("clone-client", *self.endpoints)
        ours.ready()
        self.assertEqual(ours.ask("set", "/k", "ours"), "set 1")
        self.assertEqual(theirs.update()[::3], (b"/k", b"ours"))
        theirs.set(b"/k", b"theirs")
        ours.until("value theirs", "get", "/k")


class TheirServer(threading.Thread):
    """A server of RFC 12, of one thread."""

    def __init__(self, case):
        super().__init__(daemon=True)
        self.snapshot, snapshot = case.bind(zmq.ROUTER)
        self.updates, updates = case.bind(zmq.PUB)
        self.collector, collector = case.bind(zmq.SUB)
        self.collector.setsockopt(zmq.SUBSCRIBE, b"")
        self.endpoints = [snapshot, updates, collector]
        self.table, self.sequence = {b"/a/0": b"first", b"/b/0": b"other"}, 2
        self.requests = []
        self.ended = threading.Event()

    def run(self):
        poller = zmq.Poller()
        poller.register(self.snapshot, zmq.POLLIN)
        poller.register(self.collector, zmq.POLLIN)
        while not self.ended.is_set():
            ready = dict(poller.poll(100))
            if self.snapshot in ready:
                identity, *request = self.snapshot.recv_multipart()
                self.requests.append(request)
                subtree = request[1]
                for key, value in self.table.items():
                    if key.startswith(subtree):
                        # With properties, as the programs of the guide send them.
                        self.snapshot.send_multipart([identity, key, number(1), b"", b"x=y\n", value])
                self.snapshot.send_multipart([identity, b"KTHXBAI", number(self.sequence), b"", b"", subtree])
            if self.collector in ready:
                key, _, ident, properties, value = self.collector.recv_multipart()
                self.sequence += 1
                self.table[key] = value
                self.updates.send_multipart([key, number(self.sequence), ident, properties, value])
            if not ready:
                self.updates.send_multipart([b"HUGZ", number(0), b"", b"", b""])


class ClientTest(Case):
    def setUp(self):
        super().setUp()
        self.server = TheirServer(self)
        self.server.start()
        self.addCleanup(self.server.join)
        self.addCleanup(self.server.ended.set)

    def test_client(self):
        client = self.peer("clone-client", *self.server.endpoints, "/a/")
        client.ready()
        self.assertEqual(self.server.requests, [[b"ICANHAZ?", b"/a/"]])
        self.assertEqual(client.ask("get", "/a/0"), "value first")
        self.assertEqual(client.ask("get", "/b/0"), "none")
        self.assertEqual(client.ask("set", "/a/1", "v"), "set 3")
        self.assertEqual(client.ask("get", "/a/1"), "value v")
        self.assertEqual(client.ask("delete", "/a/1"), "set 4")
        self.assertEqual(client.ask("get", "/a/1"), "none")
        self.assertEqual(self.server.table[b"/a/1"], b"")
