"""CURVE between our machine and sockets of libzmq: every legal pair, both roles, either side listening."""

import threading
import time
import unittest
import urllib.error

import test_server
import test_zmtp
import zmq
import zmq.auth
import zmq.auth.thread
from peer import LIMIT, Relay, text
from test_zmtp import PAIRS
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message


class Keys:
    """A key pair, in the forms of the two sides."""

    def __init__(self):
        self.public, self.secret = zmq.curve_keypair()
        self.public_hex, self.secret_hex = z85.decode(self.public).hex(), z85.decode(self.secret).hex()


OURS, THEIRS = Keys(), Keys()


class Case(test_zmtp.Case):
    def their_client(self, kind, server=OURS):
        socket = self.socket(kind)
        socket.curve_publickey, socket.curve_secretkey = THEIRS.public, THEIRS.secret
        socket.curve_serverkey = server.public
        return socket

    def their_server(self, kind):
        socket = self.socket(kind)
        socket.curve_server = True
        socket.curve_secretkey = THEIRS.secret
        return socket

    def our_server(self, ours, socket, *options, we_listen=True):
        """Our side as the server; it accepts the key of the client."""
        peer = self.connect(ours, socket, "curve-server=" + OURS.secret_hex, *options, we_listen=we_listen)
        self.assertEqual(peer.line(), "key " + THEIRS.public_hex)
        peer.say("accept")
        return peer

    def our_client(self, ours, socket, *options, we_listen=False):
        keys = f"curve={OURS.secret_hex}:{THEIRS.public_hex}"
        return self.connect(ours, socket, keys, *options, we_listen=we_listen)


class Pairs(Case):
    def check(self, ours, theirs, we_listen, is_server):
        socket = self.their_client(theirs) if is_server else self.their_server(theirs)
        if theirs in ("DEALER", "REQ", "ROUTER"):
            socket.identity = b"them"
        if theirs == "ROUTER":
            # Fails to send to an identity that it has not received.
            socket.router_mandatory = True
        options = ["identity=" + text(b"us")] if ours in ("DEALER", "REQ", "ROUTER") else []
        start = self.our_server if is_server else self.our_client
        peer = start(ours, socket, *options, we_listen=we_listen)
        identity = b"them" if theirs in ("DEALER", "REQ", "ROUTER") else b""
        self.assertEqual(peer.line(), f"ready {theirs} 1 {text(identity)}")
        self.exchange(ours, theirs, peer, socket)

    def check_all(self, we_listen, is_server):
        for ours, theirs in PAIRS:
            with self.subTest(ours=ours, theirs=theirs):
                try:
                    self.check(ours, theirs, we_listen, is_server)
                finally:
                    self.tearDown()
                    self.setUp()

    def test_to_our_server(self):
        self.check_all(True, True)

    def test_server_that_connects(self):
        self.check_all(False, True)

    def test_to_their_server(self):
        self.check_all(False, False)

    def test_client_that_listens(self):
        self.check_all(True, False)


class Details(Case):
    def test_a_side_of_3_0_sends_subscriptions_as_messages(self):
        for ours, theirs in [("SUB", "XPUB"), ("XSUB", "XPUB"), ("PUB", "SUB"), ("XPUB", "XSUB")]:
            for is_server in (True, False):
                with self.subTest(ours=ours, is_server=is_server):
                    if is_server:
                        socket = self.their_client(theirs)
                        peer = self.our_server(ours, socket, "minor=0")
                    else:
                        socket = self.their_server(theirs)
                        peer = self.our_client(ours, socket, "minor=0")
                    self.assertTrue(peer.line().startswith(f"ready {theirs} 0 "))
                    self.exchange(ours, theirs, peer, socket)

    def test_heartbeats(self):
        socket = self.their_client("PAIR")
        socket.heartbeat_ivl, socket.heartbeat_ttl, socket.heartbeat_timeout = 50, 1500, LIMIT * 1000
        peer = self.our_server("PAIR", socket)
        self.assertTrue(peer.line().startswith("ready PAIR"))
        for _ in range(3):
            self.assertEqual(peer.line(), "ping 15")
        for context in (b"", b"ctx1", b"sixteen bytes ok"):
            peer.say("ping", context)
            while (line := peer.line()) == "ping 15":
                pass
            self.assertEqual(line, "pong " + text(context))

    def test_pieces(self):
        for sizes in [(1,), (10, 1, 53), (64,), (3, 70_000)]:
            with self.subTest(sizes=sizes):
                peer = self.peer("ROUTER", "listen", "curve-server=" + OURS.secret_hex)
                relay = Relay(peer.address, *sizes)
                self.exit.callback(relay.end)
                socket = self.their_client("DEALER")
                socket.connect("tcp://" + relay.address)
                self.assertEqual(peer.line(), "key " + THEIRS.public_hex)
                peer.say("accept")
                self.assertTrue(peer.line().startswith("ready DEALER"))
                self.exchange("ROUTER", "DEALER", peer, socket)

    def test_our_rejected_key(self):
        authenticator = zmq.auth.thread.ThreadAuthenticator(self.context)
        authenticator.start()
        self.exit.callback(authenticator.stop)
        known = set()

        class Verifier:
            def callback(self, domain, key):
                return key in known

        authenticator.configure_curve_callback(domain="*", credentials_provider=Verifier())
        socket = self.their_server("PULL")
        peer = self.our_client("PUSH", socket)
        self.assertEqual(peer.line(), 'error refused peer sent ERROR "400"')
        known.add(OURS.public)
        socket = self.their_server("PULL")
        peer = self.our_client("PUSH", socket)
        self.assertTrue(peer.line().startswith("ready PULL"))
        peer.say("send", b"job")
        self.assertEqual(socket.recv(), b"job")

    def test_their_rejected_key(self):
        socket = self.their_client("PUSH")
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        peer = self.connect("PULL", socket, "curve-server=" + OURS.secret_hex)
        self.assertEqual(peer.line(), "key " + THEIRS.public_hex)
        peer.process.stdin.write("reject 400\n")
        self.assertEqual(peer.line(), "closed")
        self.assertTrue(monitor.poll(LIMIT * 1000))
        self.assertEqual(recv_monitor_message(monitor)["value"], 400)
        socket.disable_monitor()

    def test_a_key_of_another_server(self):
        client, server = self.their_client("PUSH", server=Keys()), self.their_server("PULL")
        peer = self.connect("PULL", client, "curve-server=" + OURS.secret_hex)
        error = "error curve HELLO of CURVE has a box that does not open with the key of this server"
        self.assertEqual(peer.line(), error)
        keys = f"curve={OURS.secret_hex}:{Keys().public_hex}"
        peer = self.connect("PUSH", server, keys, we_listen=False)
        self.assertEqual(peer.line(), "closed")

    def test_many_messages(self):
        count = 20_000
        for is_server in (True, False):
            with self.subTest(is_server=is_server):
                if is_server:
                    socket = self.their_client("PUSH")
                    peer = self.our_server("PULL", socket)
                else:
                    socket = self.their_server("PUSH")
                    peer = self.our_client("PULL", socket)
                self.assertTrue(peer.line().startswith("ready PUSH"))
                sender = threading.Thread(target=self.send_many, args=(socket, count))
                sender.start()
                for number in range(count):
                    self.assertEqual(peer.message(), [b"%d" % number, b"."])
                sender.join()

    def send_many(self, socket, count):
        for number in range(count):
            socket.send_multipart([b"%d" % number, b"."])


class OnAServer(test_server.Case):
    """Sockets of libzmq on the port of a server, whose `auth` knows their key."""

    OPTIONS = (f"curve={OURS.secret_hex}:{THEIRS.public_hex}",)

    def socket(self, kind, keys=THEIRS, server=OURS, **options):
        options.update(curve_publickey=keys.public, curve_secretkey=keys.secret, curve_serverkey=server.public)
        return super().socket(kind, **options)

    def test_subscribers_and_publishers(self):
        subscribers = [self.subscriber(b"t/", kind=kind) for kind in ("SUB", "XSUB")]
        publisher = self.socket("PUB")
        while not subscribers[0].poll(20):
            publisher.send_multipart([b"t/begin", b"x"])
        bodies = [b"", b"x" * 255, b"y" * 256, b"z" * 70_000]
        publisher.send_multipart([b"t/end", *bodies])
        self.server.ask("publish other x")
        self.server.ask("publish t/last y")
        for subscriber in subscribers:
            messages = []
            while len(messages) < 2:
                if (message := subscriber.recv_multipart())[0] != b"t/begin":
                    messages.append(message)
            self.assertEqual(sorted(messages), [[b"t/end", *bodies], [b"t/last", b"y"]])
        self.assertEqual(self.call_as_http(), 401)

    def call_as_http(self):
        """The status of a call of a service on the same port, without a key."""
        try:
            return self.call("beside") and 200
        except urllib.error.HTTPError as error:
            return error.code

    def test_jobs(self):
        workers, pusher = [self.socket("PULL") for _ in range(2)], self.socket("PUSH")
        for job in range(400):
            pusher.send_multipart([b"%d" % job, b"part"])
        jobs, end = set(), time.monotonic() + LIMIT
        while len(jobs) < 400:
            self.assertLess(time.monotonic(), end)
            for worker in workers:
                while worker.poll(5):
                    jobs.add(tuple(worker.recv_multipart()))
        self.assertEqual(jobs, {(b"%d" % job, b"part") for job in range(400)})

    def test_calls_have_the_caller_of_the_key(self):
        peer = self.socket("REQ")
        peer.send_multipart([b"interop.v1.Clock/Who", b"{}"])
        self.assertEqual(peer.recv_multipart(), [b"OK", b'"alice"'])

    def test_others_are_refused(self):
        for reason, options in (("credentials", {"keys": Keys()}), ("curve", {"server": Keys()})):
            with self.subTest(reason):
                peer = self.socket("SUB", **options)
                self.server.until_closed(reason, 1)
                peer.close()


if __name__ == "__main__":
    unittest.main()
