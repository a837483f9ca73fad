"""Connects our sockets and those of libzmq: every legal pair, with NULL, PLAIN and CURVE, either side bound, tcp and ipc,
each with a reconnect in between."""

import itertools
import os
import queue
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import zmq
from peer import LIMIT, text
from test_curve import OURS, THEIRS
from test_zmtp import BODIES, PAIRS, Case
from zmq.utils.monitor import recv_monitor_message


class Ours:
    """A socket of ours in a process of its own."""

    def __init__(self, kind, verb, endpoint, *options):
        command = [os.environ["ZMTP_SOCKET"], kind, verb, endpoint, *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if verb == "bind":
            self.endpoint = self.line().removeprefix("bound ")

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("end")

    def line(self):
        return self.lines.get(timeout=LIMIT)

    def write(self, name, *parts):
        self.process.stdin.write(" ".join([name, *map(text, parts)]) + "\n")

    def does(self, name, *parts, response):
        self.write(name, *parts)
        line = self.line()
        assert line == response, (name, line)

    def send(self, frames):
        self.does("send", *frames, response="sent")

    def read(self):
        """Reads the message of a `recv` that was written."""
        name, *parts = self.line().split(" ")
        assert name == "message", (name, parts)
        return [b"" if part == "-" else bytes.fromhex(part) for part in parts]

    def recv(self):
        self.write("recv")
        return self.read()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Sockets(Case):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory(prefix="zmtp-")
        self.exit.callback(self.folder.cleanup)
        self.number = itertools.count()

    def theirs(self, kind, security):
        socket = self.socket(kind)
        if kind in ("DEALER", "REQ", "ROUTER"):
            socket.identity = b"them"
        if kind == "ROUTER":
            socket.router_mandatory = True
            # The socket that replaces this one has the same peer.
            socket.router_handover = True
        # The role is that of our side.
        if security == "plain server":
            socket.plain_username, socket.plain_password = b"admin", b"secret"
        elif security == "plain client":
            socket.plain_server = True
        elif security == "curve server":
            socket.curve_publickey, socket.curve_secretkey = THEIRS.public, THEIRS.secret
            socket.curve_serverkey = OURS.public
        elif security == "curve client":
            socket.curve_server, socket.curve_secretkey = True, THEIRS.secret
        socket.reconnect_ivl = 10
        return socket

    def ours(self, kind, verb, endpoint, security):
        options = {
            "plain server": ["server"],
            "plain client": [f"plain={text(b'admin')}:{text(b'secret')}"],
            "curve server": [f"curve-server={OURS.secret_hex}:{THEIRS.public_hex}"],
            "curve client": [f"curve={OURS.secret_hex}:{THEIRS.public_hex}"],
        }
        options = list(options.get(security, []))
        if kind in ("DEALER", "REQ", "ROUTER"):
            options.append("identity=" + text(b"us"))
        peer = Ours(kind, verb, endpoint, *options)
        self.exit.callback(peer.end)
        return peer

    def bind(self, socket, endpoint):
        """Binds their socket; the previous one may not have released the address yet."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                socket.bind(endpoint)
                return socket.getsockopt_string(zmq.LAST_ENDPOINT)
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE or time.monotonic() > deadline:
                    raise
                time.sleep(0.002)

    def check(self, ours, theirs, we_bind, transport, security):
        endpoint = "tcp://127.0.0.1:0"
        if transport == "ipc":
            endpoint = f"ipc://{self.folder.name}/{next(self.number)}"
        socket = self.theirs(theirs, security)
        if we_bind:
            peer = self.ours(ours, "bind", endpoint, security)
            endpoint = peer.endpoint
            socket.connect(endpoint)
        else:
            endpoint = self.bind(socket, endpoint.replace(":0", ":*"))
            peer = self.ours(ours, "connect", endpoint, security)
        self.exchange(ours, theirs, peer, socket, is_first=True)
        socket.close()
        if ours == "XPUB":
            self.assertEqual(peer.recv(), [b"\0top"], "the end of the peer ends its subscriptions")
        socket = self.theirs(theirs, security)
        if we_bind:
            socket.connect(endpoint)
        else:
            self.bind(socket, endpoint)
        if ours not in ("SUB", "XSUB"):
            peer.write("connections 2")
            self.poll_until_line(peer, socket)
            self.assertEqual(peer.line(), "connected")
        self.exchange(ours, theirs, peer, socket, is_first=False)
        peer.does("close", response="closed")
        peer.end()
        socket.close()

    def poll_until_line(self, peer, socket):
        """Waits for a line of ours; libzmq works on a new connection only inside of its calls."""
        deadline = time.monotonic() + LIMIT
        while peer.lines.empty():
            socket.poll(1)
            self.assertLess(time.monotonic(), deadline, "no line of ours")

    def exchange(self, ours, theirs, peer, socket, is_first):
        """Sends messages of many sizes in each direction that the two types allow."""
        if "SUB" in theirs:
            self.publish(ours, theirs, peer, socket)
        elif "SUB" in ours:
            self.subscribe(theirs, peer, socket, is_first)
        elif ours == "PULL":
            socket.send_multipart(BODIES)
            self.assertEqual(peer.recv(), BODIES)
        elif ours == "PUSH":
            peer.send(BODIES)
            self.assertEqual(socket.recv_multipart(), BODIES)
        elif ours == "REP" or theirs == "REQ":
            self.reply(ours, theirs, peer, socket)
        elif (ours, theirs) == ("ROUTER", "DEALER"):
            self.their_turn(peer, socket, [b"them"], [])
        elif (ours, theirs) == ("ROUTER", "ROUTER"):
            self.their_turn(peer, socket, [b"them"], [b"us"])
        else:
            self.request(ours, theirs, peer, socket)

    def their_turn(self, peer, socket, our_envelope, their_envelope):
        self.send_when_known(socket, [*their_envelope, *BODIES])
        self.assertEqual(peer.recv(), [*our_envelope, *BODIES])
        peer.send([*our_envelope, *BODIES[::-1]])
        self.assertEqual(socket.recv_multipart(), [*their_envelope, *BODIES[::-1]])

    def send_when_known(self, socket, frames):
        """A ROUTER knows an id once the handshake is complete."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                return socket.send_multipart(frames)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH or time.monotonic() > deadline:
                    raise
                socket.poll(1)

    def reply(self, ours, theirs, peer, socket):
        """They send a request, we reply."""
        their_envelope = [] if theirs == "REQ" else [b"id", b""]
        our_envelope = [b"them", b""] if ours == "ROUTER" else [b""] if ours == "DEALER" else []
        socket.send_multipart([*their_envelope, b"question"])
        self.assertEqual(peer.recv(), [*our_envelope, b"question"])
        peer.send([*our_envelope, *BODIES])
        self.assertEqual(socket.recv_multipart(), [*their_envelope, *BODIES])

    def request(self, ours, theirs, peer, socket):
        """We send a request, they reply."""
        our_envelope = [b""] if (ours, theirs) == ("DEALER", "REP") else []
        peer.send([*our_envelope, *BODIES])
        received = socket.recv_multipart()
        their_envelope = received[: len(received) - len(BODIES)]
        self.assertEqual(received[len(their_envelope) :], BODIES)
        expected = {"ROUTER": [b"us", b""] if ours == "REQ" else [b"us"]}.get(theirs, [])
        self.assertEqual(their_envelope, expected)
        socket.send_multipart([*their_envelope, *BODIES[::-1]])
        self.assertEqual(peer.recv(), [*our_envelope, *BODIES[::-1]])

    def publish(self, ours, theirs, peer, socket):
        """Their SUB or XSUB subscribes, and has a subscription when it closes."""
        if theirs == "XSUB":
            socket.send(b"\1top")
        else:
            socket.subscribe(b"top")
        if ours == "XPUB":
            peer.write("recv")
            self.poll_until_line(peer, socket)
            self.assertEqual(peer.read(), [b"\1top"])
        else:
            deadline = time.monotonic() + LIMIT
            while True:
                peer.send([b"top", b"first"])
                if socket.poll(5):
                    break
                self.assertLess(time.monotonic(), deadline, "no message arrives")
        peer.send([b"other", b"not delivered"])
        peer.send([b"topic", *BODIES])
        while (message := socket.recv_multipart()) == [b"top", b"first"]:
            pass
        self.assertEqual(message, [b"topic", *BODIES])

    def subscribe(self, theirs, peer, socket, is_first):
        """We subscribe once: the subscription is sent again after the reconnect."""
        if is_first:
            peer.does("subscribe", b"top", response="done")
        if theirs == "XPUB":
            self.assertEqual(socket.recv(), b"\1top")
        peer.write("recv")
        deadline = time.monotonic() + LIMIT
        while peer.lines.empty():
            # A PUB drops messages before it has read the subscription.
            socket.send_multipart([b"top", b"first"])
            socket.poll(1, zmq.POLLIN if theirs == "XPUB" else 0)
            time.sleep(0.002)
            self.assertLess(time.monotonic(), deadline, "no message arrives")
        self.assertEqual(peer.read(), [b"top", b"first"])
        socket.send_multipart([b"other", b"not delivered"])
        socket.send_multipart([b"topic", *BODIES])
        while (message := peer.recv()) == [b"top", b"first"]:
            pass
        self.assertEqual(message, [b"topic", *BODIES])

    def check_all(self, we_bind, security=None):
        if security == "plain client":
            self.authenticator()
        for transport, (ours, theirs) in itertools.product(("tcp", "ipc"), PAIRS):
            if (theirs, security) == ("REQ", "plain client"):
                # A REQ of libzmq with a handler of ZAP receives no replies, not even from a REP of its own.
                continue
            with self.subTest(ours=ours, theirs=theirs, transport=transport):
                self.check(ours, theirs, we_bind, transport, security)

    def test_we_bind(self):
        self.check_all(True)

    def test_they_bind(self):
        self.check_all(False)

    def test_plain_server_that_binds(self):
        self.check_all(True, "plain server")

    def test_plain_server_that_connects(self):
        self.check_all(False, "plain server")

    def test_plain_client_that_binds(self):
        self.check_all(True, "plain client")

    def test_plain_client_that_connects(self):
        self.check_all(False, "plain client")

    def test_curve_server_that_binds(self):
        self.check_all(True, "curve server")

    def test_curve_server_that_connects(self):
        self.check_all(False, "curve server")

    def test_curve_client_that_binds(self):
        self.check_all(True, "curve client")

    def test_curve_client_that_connects(self):
        self.check_all(False, "curve client")


class Streams(Case):
    """Many messages, and peers that stop."""

    COUNT = 50_000

    def test_a_stalled_libzmq_receiver_loses_nothing(self):
        pull = self.socket("PULL")
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        peer = Ours("PUSH", "connect", f"tcp://127.0.0.1:{port}")
        self.exit.callback(peer.end)
        for number in range(self.COUNT):
            peer.write("send", b"%d" % number)
        for number in range(self.COUNT):
            self.assertEqual(pull.recv(), b"%d" % number)

    def test_rejected_credentials(self):
        self.authenticator()
        pull = self.socket("PULL")
        pull.plain_server = True
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        peer = Ours("PUSH", "connect", f"tcp://127.0.0.1:{port}", f"plain={text(b'admin')}:{text(b'wrong')}")
        self.exit.callback(peer.end)
        peer.send([b"never arrives"])
        self.assertFalse(pull.poll(200))

    def test_a_key_that_is_not_known(self):
        push = self.socket("PUSH")
        push.curve_publickey, push.curve_secretkey = zmq.curve_keypair()
        push.curve_serverkey = OURS.public
        keys = f"curve-server={OURS.secret_hex}:{THEIRS.public_hex}"
        peer = Ours("PULL", "bind", "tcp://127.0.0.1:0", keys)
        self.exit.callback(peer.end)
        monitor = push.get_monitor_socket()
        push.connect(peer.endpoint)
        event = None
        while event != zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.assertTrue(monitor.poll(LIMIT * 1000), "libzmq gets the status of ZAP")
            event = recv_monitor_message(monitor)["event"]
        push.disable_monitor()

    def test_a_server_with_another_key(self):
        pull = self.socket("PULL")
        pull.curve_server, pull.curve_secretkey = True, zmq.curve_keypair()[1]
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        peer = Ours("PUSH", "connect", f"tcp://127.0.0.1:{port}", f"curve={OURS.secret_hex}:{THEIRS.public_hex}")
        self.exit.callback(peer.end)
        peer.send([b"never arrives"])
        self.assertFalse(pull.poll(200))

    def test_a_stalled_receiver_with_curve_loses_nothing(self):
        pull = self.socket("PULL")
        pull.curve_server, pull.curve_secretkey = True, THEIRS.secret
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        peer = Ours("PUSH", "connect", f"tcp://127.0.0.1:{port}", f"curve={OURS.secret_hex}:{THEIRS.public_hex}")
        self.exit.callback(peer.end)
        for number in range(self.COUNT):
            peer.write("send", b"%d" % number)
        for number in range(self.COUNT):
            self.assertEqual(pull.recv(), b"%d" % number)


class Raw(Case):
    """STREAM on either side, and programs that speak TCP alone."""

    def peer(self, *arguments):
        peer = Ours("STREAM", *arguments)
        self.exit.callback(peer.end)
        return peer

    def test_our_stream_and_theirs(self):
        for we_bind in (True, False):
            with self.subTest(we_bind=we_bind):
                theirs = self.socket("STREAM")
                if we_bind:
                    peer = self.peer("bind", "tcp://127.0.0.1:0")
                    theirs.connect(peer.endpoint)
                else:
                    port = theirs.bind_to_random_port("tcp://127.0.0.1")
                    peer = self.peer("connect", f"tcp://127.0.0.1:{port}")
                their_id, nothing = theirs.recv_multipart()
                our_id, none = peer.recv()
                self.assertEqual((nothing, none), (b"", b""))
                peer.send([our_id, b"from us"])
                self.assertEqual(theirs.recv_multipart(), [their_id, b"from us"])
                theirs.send_multipart([their_id, b"from them"])
                self.assertEqual(peer.recv(), [our_id, b"from them"])
                peer.send([our_id, b""])
                self.assertEqual(theirs.recv_multipart(), [their_id, b""], "the end of the connection")
                self.assertEqual(peer.recv(), [our_id, b""])
                peer.end()
                theirs.close()

    def test_a_plain_client(self):
        peer = self.peer("bind", "tcp://127.0.0.1:0")
        host, port = peer.endpoint.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port)), LIMIT) as client:
            client.settimeout(LIMIT)
            route, _ = peer.recv()
            client.sendall(b"question")
            self.assertEqual(peer.recv(), [route, b"question"])
            peer.send([route, b"x" * 100_000])
            peer.send([route, b""])
            with client.makefile("rb") as response:
                self.assertEqual(response.read(), b"x" * 100_000)
        self.assertEqual(peer.recv(), [route, b""])


if __name__ == "__main__":
    unittest.main()
