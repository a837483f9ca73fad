"""Sockets of libzmq on the port of a server with the plugin for ZeroMQ."""

import contextlib
import json
import os
import queue
import re
import socket
import subprocess
import threading
import time
import unittest
import urllib.request

import zmq
from peer import LIMIT


class Server:
    """The program zmtp-server."""

    def __init__(self, *options):
        command = [os.environ["ZMTP_SERVER"], *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.addresses = self.line().removeprefix("listening on ").split(" ")
        self.address = self.addresses[0]

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

    def closed(self, reason):
        """The number of connections that ended for this reason."""
        counts = dict(re.findall(r"(\w+): (\d+)", self.ask("closed")))
        return int(counts.get(reason, 0))

    def until_closed(self, reason, count):
        end = time.monotonic() + LIMIT
        while self.closed(reason) < count:
            assert time.monotonic() < end, self.ask("closed")

    def until(self, condition):
        """Asks for the counters until they are as expected."""
        end = time.monotonic() + LIMIT
        while not condition(self.stats()):
            assert time.monotonic() < end, self.stats()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Case(unittest.TestCase):
    # Options of the server.
    OPTIONS = ()

    def setUp(self):
        self.context = zmq.Context()
        self.exit = contextlib.ExitStack()
        self.exit.callback(self.context.destroy, linger=0)
        self.server = Server(*self.OPTIONS)
        self.exit.callback(self.server.end)

    def tearDown(self):
        self.exit.close()

    def socket(self, kind, **options):
        peer = self.context.socket(getattr(zmq, kind))
        peer.linger = 0
        peer.rcvtimeo = peer.sndtimeo = LIMIT * 1000
        address = options.pop("address", "tcp://" + self.server.address)
        for name, value in options.items():
            setattr(peer, name, value)
        peer.connect(address)
        return peer

    def subscriber(self, *prefixes, kind="SUB", **options):
        """A subscriber whose subscriptions the server has."""
        peer = self.socket(kind, **options)
        subscribe = (
            (lambda prefix: peer.subscribe(prefix)) if kind == "SUB" else (lambda prefix: peer.send(b"\1" + prefix))
        )
        # Subscriptions are in order: one to a topic of its own shows that those before it have arrived.
        probe = b"probe/%d" % id(peer)
        for prefix in (*prefixes, probe):
            subscribe(prefix)
        end = time.monotonic() + LIMIT
        peer.rcvtimeo = 20
        while True:
            self.server.ask(f"publish {probe.decode()} x")
            with contextlib.suppress(zmq.Again):
                peer.recv_multipart()
                break
            self.assertLess(time.monotonic(), end)
        # More than one may have been sent.
        with contextlib.suppress(zmq.Again):
            while True:
                peer.recv_multipart()
        peer.rcvtimeo = LIMIT * 1000
        if kind == "SUB":
            peer.unsubscribe(probe)
        else:
            peer.send(b"\0" + probe)
        return peer

    def call(self, text):
        """A call of a service on the same port."""
        request = urllib.request.Request(
            f"http://{self.server.address}/interop.v1.Clock/Ping",
            json.dumps({"text": text}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT) as response:
            return json.load(response)


class Topics(Case):
    def test_subscribers_get_topics_with_their_prefixes(self):
        for kind in ("SUB", "XSUB"):
            with self.subTest(kind):
                peer = self.subscriber(b"quotes/", b"news", kind=kind)
                for topic in ("quotes/acme", "weather", "newsflash", "quotes/zoo"):
                    self.server.ask(f"publish {topic} of-{topic}")
                received = sorted(peer.recv_multipart() for _ in range(3))
                expected = ["newsflash", "quotes/acme", "quotes/zoo"]
                self.assertEqual(received, [[topic.encode(), f"of-{topic}".encode()] for topic in expected])
                self.assertEqual(self.call("beside"), "beside")

    def test_overlapping_prefixes_deliver_once(self):
        peer = self.subscriber(b"a", b"a/b", b"a/b/c", b"")
        for at in range(20):
            self.server.ask(f"publish a/b/c/d {at}")
        self.server.ask("publish end x")
        received = []
        while (message := peer.recv_multipart())[0] != b"end":
            received.append(int(message[1]))
        self.assertEqual(received, list(range(20)))

    def test_a_cancelled_prefix_ends(self):
        peer = self.subscriber(b"a/", b"b/")
        peer.unsubscribe(b"a/")
        peer.subscribe(b"c/")
        while True:
            # Until the new subscription is there, which follows the cancellation.
            self.server.ask("publish c/ x")
            if peer.poll(20):
                break
        self.server.ask("publish a/1 x")
        self.server.ask("publish b/1 x")
        topics = set()
        while b"b/1" not in topics:
            topics.add(peer.recv_multipart()[0])
        self.assertEqual(topics, {b"b/1", b"c/"})

    def test_many_subscriptions(self):
        # libzmq drops subscriptions beyond the high-water mark of a connection that is not there yet.
        peer = self.subscriber(*(b"many/%04d/" % at for at in range(2000)), sndhwm=0)
        self.server.ask("publish many/1999/x last")
        self.assertEqual(peer.recv_multipart(), [b"many/1999/x", b"last"])
        peer.unsubscribe(b"many/1999/")
        peer.subscribe(b"end")
        while not peer.poll(20):
            self.server.ask("publish end x")
        self.server.ask("publish many/1999/x no")
        self.server.ask("publish many/0000/x yes")
        while (message := peer.recv_multipart())[0] == b"end":
            pass
        self.assertEqual(message, [b"many/0000/x", b"yes"])

    def test_publishers_reach_subscribers_and_the_bus(self):
        peer = self.subscriber(b"")
        for kind in ("PUB", "XPUB"):
            with self.subTest(kind):
                publisher = self.socket(kind)
                messages = [
                    [b"t/1", b"one"],
                    [b"t/2", b"", b"x" * 255, b"y" * 256, b"z" * 70_000],
                    [b"t/3", b""],
                    [b"a line without a topic"],
                ]
                # The server subscribes when it knows the publisher; what is sent before is lost, as with libzmq.
                while True:
                    publisher.send_multipart([b"begin", b"x"])
                    if peer.poll(20):
                        break
                for message in messages:
                    publisher.send_multipart(message)
                received = []
                while len(received) < len(messages):
                    if (message := peer.recv_multipart())[0] != b"begin":
                        received.append(message)
                # Entries are in order in each topic.
                self.assertEqual(sorted(received), sorted(messages))
                # Sent before the end, and received by now.
                publisher.close()
        # In any order: they are of different topics.
        wanted = {"entry t/1", "entry t/2"}
        entries = set()
        while not wanted <= {" ".join(entry.split(" ")[:2]) for entry in entries}:
            entries.add(self.server.ask("next"))
        self.assertIn("entry t/1 one", entries)

    def test_names_that_are_no_topics_are_refused_and_counted(self):
        peer, publisher = self.subscriber(b""), self.socket("PUB")
        while not peer.poll(20):
            publisher.send_multipart([b"begin", b"x"])
        before = self.server.stats()["refused"]
        bad = [b"", b"$internal", b"a/*/b", b"x" * 257, b"a\0b", b"\xff", b"/".join([b"a"] * 17)]
        for name in bad:
            publisher.send_multipart([name, b"x"])
        publisher.send_multipart([b"end", b"x"])
        while peer.recv_multipart()[0] != b"end":
            pass
        self.assertEqual(self.server.stats()["refused"] - before, len(bad))

    def test_each_job_goes_to_one_worker(self):
        workers = [self.socket("PULL") for _ in range(3)]
        pushers = [self.socket("PUSH") for _ in range(2)]
        jobs = {b"%d.%d" % (at, job) for at in range(len(pushers)) for job in range(500)}
        received = [[] for _ in workers]
        for at, pusher in enumerate(pushers):
            for job in range(500):
                pusher.send_multipart([b"%d.%d" % (at, job)])
        end = time.monotonic() + LIMIT
        while sum(map(len, received)) < len(jobs):
            self.assertLess(time.monotonic(), end, [len(each) for each in received])
            for worker, each in zip(workers, received):
                while worker.poll(5):
                    (job,) = worker.recv_multipart()
                    each.append(job)
        self.assertEqual({job for each in received for job in each}, jobs)
        self.assertEqual(sum(map(len, received)), len(jobs))
        # Every worker that was there from the start has some.
        self.assertTrue(all(received), [len(each) for each in received])

    def test_jobs_wait_for_a_worker_and_pass_one_that_does_not_read(self):
        slow = self.socket("PULL", rcvhwm=1, rcvbuf=4096)
        fast = self.socket("PULL")
        pusher = self.socket("PUSH")
        # Until both are there: a single worker gets as much as the buffers of its connection hold.
        while not fast.poll(20):
            pusher.send_multipart([b"begin", b""])
        body = b"x" * 10_000
        for at in range(600):
            pusher.send_multipart([b"%d" % at, body])
        jobs = set()
        while len(jobs) < 300:
            jobs.add(fast.recv_multipart()[0])
        slow.close()
        fast.close()
        self.assertEqual(self.call("beside"), "beside")

    def test_a_subscriber_that_does_not_read_does_not_stop_others(self):
        self.subscriber(b"", rcvhwm=1, rcvbuf=4096)
        peer = self.subscriber(b"", rcvhwm=0)
        publisher = self.socket("PUB", sndhwm=0)
        while not peer.poll(20):
            publisher.send_multipart([b"begin", b"x"])
        body = b"x" * 20_000
        received = 0
        for _ in range(20):
            for _ in range(50):
                publisher.send_multipart([b"t", body])
            expected = received + 50
            while received < expected:
                received += peer.recv_multipart()[0] == b"t"
        self.assertEqual(received, 1000)

    def test_peers_that_break_the_protocol_are_closed(self):
        peer = self.subscriber(b"t")
        greeting = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL" + b"\0" * 48
        ready = b"\4\x1a\5READY\x0bSocket-Type\0\0\0\4PAIR"
        for bad in (
            b"\xff\0\0\0\0\0\0\0\1\x7f\1" + b"\0" * 53,
            greeting.replace(b"NULL", b"CURV"),
            greeting + ready,
            greeting + b"\x80\1x",
            greeting + ready.replace(b"PAIR", b"PUSH") + b"\2\x7f\xff\xff\xff\xff\xff\xff\xff",
        ):
            with self.subTest(bad[:16]), socket.create_connection(self.server.address.split(":"), LIMIT) as bare:
                bare.sendall(bad)
                with contextlib.suppress(ConnectionResetError):
                    while bare.recv(4096):
                        pass
        self.server.until(lambda stats: stats["protocol_errors"] >= 5)
        self.server.ask("publish t/1 x")
        self.assertEqual(peer.recv_multipart(), [b"t/1", b"x"])

    def test_a_silent_peer_is_greeted_at_its_tenth_byte(self):
        with socket.create_connection(self.server.address.split(":"), LIMIT) as bare:
            # As libzmq does, which sends more only after it has received as much.
            bare.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f")
            received = b""
            while len(received) < 64:
                received += bare.recv(64)
            self.assertEqual((received[0], received[10], received[12:16]), (0xFF, 3, b"NULL"))

    def test_heartbeats(self):
        peer = self.subscriber(b"t", heartbeat_ivl=50, heartbeat_timeout=2000, heartbeat_ttl=2000)
        time.sleep(0.5)
        self.server.ask("publish t/1 x")
        self.assertEqual(peer.recv_multipart(), [b"t/1", b"x"])

    def test_the_server_ends_with_its_subscribers(self):
        self.subscriber(b"t")
        self.assertEqual(self.server.ask("stop"), "stopped")
        self.assertEqual(self.server.process.wait(LIMIT), 0)


if __name__ == "__main__":
    unittest.main()
