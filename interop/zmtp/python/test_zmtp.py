"""Connects our machine and sockets of libzmq: every legal pair, NULL and PLAIN, either side listening."""

import contextlib
import unittest

import zmq
import zmq.auth.thread
from peer import LIMIT, Peer, Relay, text
from zmq.utils.monitor import recv_monitor_message

# Each type of ours with those of libzmq that it may talk to. The draft types are not in the builds of pyzmq.
PAIRS = [
    (ours, theirs)
    for ours, peers in {
        "DEALER": ["REP", "DEALER", "ROUTER"],
        "PAIR": ["PAIR"],
        "PUB": ["SUB", "XSUB"],
        "PULL": ["PUSH"],
        "PUSH": ["PULL"],
        "REP": ["REQ", "DEALER"],
        "REQ": ["REP", "ROUTER"],
        "ROUTER": ["REQ", "DEALER", "ROUTER"],
        "SUB": ["PUB", "XPUB"],
        "XPUB": ["SUB", "XSUB"],
        "XSUB": ["PUB", "XPUB"],
    }.items()
    for theirs in peers
]

# Frames of a message: an empty one, both sides of the limit of short frames, and one larger than a read buffer.
BODIES = [b"", b"x" * 255, b"y" * 256, b"z" * 70_000]


class Case(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.exit = contextlib.ExitStack()
        self.exit.callback(self.context.destroy, linger=0)

    def tearDown(self):
        self.exit.close()

    def socket(self, kind):
        socket = self.context.socket(getattr(zmq, kind))
        socket.linger = 0
        socket.rcvtimeo = socket.sndtimeo = LIMIT * 1000
        return socket

    def authenticator(self):
        """Lets sockets of this context be servers of PLAIN: libzmq passes each client to a handler of ZAP."""
        authenticator = zmq.auth.thread.ThreadAuthenticator(self.context)
        authenticator.start()
        authenticator.configure_plain(domain="*", passwords={"admin": "secret"})
        self.exit.callback(authenticator.stop)

    def peer(self, *arguments):
        peer = Peer(*arguments)
        self.exit.callback(peer.end)
        return peer

    def connect(self, ours, socket, *options, we_listen=True):
        """Starts our side, connects the two, and returns our side."""
        if we_listen:
            peer = self.peer(ours, "listen", *options)
            socket.connect("tcp://" + peer.address)
            return peer
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        return self.peer(ours, f"127.0.0.1:{port}", *options)

    def exchange(self, ours, theirs, peer, socket):
        """Sends messages of many sizes in each direction that the two types allow."""
        if "SUB" in theirs:
            self.publish(theirs, peer, socket)
        elif "SUB" in ours:
            self.subscribe(theirs, peer, socket)
        elif ours == "PULL":
            socket.send_multipart(BODIES)
            self.assertEqual(peer.message(), BODIES)
        elif ours == "PUSH":
            peer.say("send", *BODIES)
            self.assertEqual(socket.recv_multipart(), BODIES)
        elif ours == "REP" or theirs == "REQ":
            self.reply(theirs, peer, socket)
        else:
            self.request(ours, theirs, peer, socket)

    def reply(self, theirs, peer, socket):
        """They send a request; a REQ of libzmq has its envelope on the wire only, a DEALER writes it."""
        envelope = [] if theirs == "REQ" else [b"id", b""]
        socket.send_multipart([*envelope, b"question"])
        on_wire = envelope or [b""]
        self.assertEqual(peer.message(), [*on_wire, b"question"])
        peer.say("send", *on_wire, *BODIES)
        self.assertEqual(socket.recv_multipart(), [*envelope, *BODIES])

    def request(self, ours, theirs, peer, socket):
        """We send a request; a REP of libzmq removes the envelope, a ROUTER adds our identity."""
        on_wire = [b""] if ours == "REQ" or theirs == "REP" else []
        peer.say("send", *on_wire, *BODIES)
        received = socket.recv_multipart()
        envelope = received[: len(received) - len(BODIES)]
        self.assertEqual(received[len(envelope) :], BODIES)
        self.assertEqual(len(envelope), (theirs == "ROUTER") + (theirs != "REP" and len(on_wire)))
        socket.send_multipart([*envelope, *BODIES[::-1]])
        self.assertEqual(peer.message(), [*on_wire, *BODIES[::-1]])

    def publish(self, theirs, peer, socket):
        """Their SUB or XSUB subscribes; libzmq filters again in a SUB."""
        if theirs == "XSUB":
            subscribe, cancel = (lambda topic: socket.send(b"\1" + topic)), (lambda topic: socket.send(b"\0" + topic))
        else:
            subscribe, cancel = socket.subscribe, socket.unsubscribe
        subscribe(b"top")
        self.assertEqual(self.line_of(peer, socket), "subscribe " + text(b"top"))
        for _ in range(2):
            peer.say("send", b"topic", *BODIES)
            self.assertEqual(socket.recv_multipart(), [b"topic", *BODIES])
        cancel(b"top")
        self.assertEqual(peer.line(), "cancel " + text(b"top"))

    def line_of(self, peer, socket):
        """Returns the next line of ours; libzmq works on a new connection only inside of its calls."""
        while peer.lines.empty():
            socket.poll(1)
        return peer.line()

    def subscribe(self, theirs, peer, socket):
        """We subscribe; their XPUB reports it, their PUB filters by it."""
        peer.say("subscribe", b"top")
        if theirs == "XPUB":
            self.assertEqual(socket.recv(), b"\1top")
        else:
            # Their PUB has processed the subscription once it responds.
            peer.say("ping", b"now")
            self.assertEqual(peer.line(), "pong " + text(b"now"))
            self.until_delivered(peer, socket)
        socket.send_multipart([b"other", b"not delivered"])
        socket.send_multipart([b"topic", *BODIES])
        self.assertEqual(peer.message(), [b"topic", *BODIES])
        peer.say("cancel", b"top")
        if theirs == "XPUB":
            self.assertEqual(socket.recv(), b"\0top")

    def until_delivered(self, peer, socket):
        """Publishes until the first message arrives: a PUB drops messages before it has read the subscription."""
        sent = 0
        while peer.lines.empty():
            socket.send_multipart([b"top", b"%d" % sent])
            sent += 1
            if not socket.poll(1, zmq.POLLIN) and sent > 10_000:
                self.fail("no message arrives")
        socket.send_multipart([b"top", b"end"])
        while peer.message() != [b"top", b"end"]:
            pass


class Pairs(Case):
    def check(self, ours, theirs, we_listen, plain):
        socket = self.socket(theirs)
        if theirs in ("DEALER", "REQ", "ROUTER"):
            socket.identity = b"them"
        options = []
        if ours in ("DEALER", "REQ", "ROUTER"):
            options.append("identity=" + text(b"us"))
        if plain == "server":
            socket.plain_username, socket.plain_password = b"admin", b"secret"
            options.append("server")
        elif plain == "client":
            self.authenticator()
            socket.plain_server = True
            options.append(f"plain={text(b'admin')}:{text(b'secret')}")
        if theirs == "ROUTER":
            # Fails to send to an identity that it has not received.
            socket.router_mandatory = True
        peer = self.connect(ours, socket, *options, we_listen=we_listen)
        if plain == "server":
            self.assertEqual(peer.line(), f"credentials {text(b'admin')} {text(b'secret')}")
            peer.say("accept")
        identity = "them" if theirs in ("DEALER", "REQ", "ROUTER") else ""
        self.assertEqual(peer.line(), f"ready {theirs} 1 {text(identity.encode())}")
        self.exchange(ours, theirs, peer, socket)

    def check_all(self, we_listen, plain):
        for ours, theirs in PAIRS:
            if (theirs, plain) == ("REQ", "client"):
                # A REQ of libzmq with a handler of ZAP receives no replies, not even from a REP of its own.
                continue
            with self.subTest(ours=ours, theirs=theirs):
                try:
                    self.check(ours, theirs, we_listen, plain)
                finally:
                    self.tearDown()
                    self.setUp()

    def test_null_to_our_listener(self):
        self.check_all(True, None)

    def test_null_to_their_listener(self):
        self.check_all(False, None)

    def test_plain_to_our_server(self):
        self.check_all(True, "server")

    def test_plain_server_that_connects(self):
        self.check_all(False, "server")

    def test_plain_to_their_server(self):
        self.check_all(False, "client")

    def test_plain_client_that_listens(self):
        self.check_all(True, "client")


class Details(Case):
    def test_identities_address_us(self):
        router = self.socket("ROUTER")
        dealer = self.connect("DEALER", router, "identity=" + text(b"us"), we_listen=False)
        self.assertEqual(dealer.line(), "ready ROUTER 1 -")
        dealer.say("send", b"hello")
        self.assertEqual(router.recv_multipart(), [b"us", b"hello"])
        router.send_multipart([b"us", b"a", b"", b"b"])
        self.assertEqual(dealer.message(), [b"a", b"", b"b"])

    def test_a_side_of_3_0_sends_subscriptions_as_messages(self):
        for ours, theirs in [("SUB", "XPUB"), ("XSUB", "XPUB"), ("PUB", "SUB"), ("XPUB", "XSUB")]:
            with self.subTest(ours=ours):
                socket = self.socket(theirs)
                peer = self.connect(ours, socket, "minor=0")
                self.assertTrue(peer.line().startswith(f"ready {theirs} 0 "))
                self.exchange(ours, theirs, peer, socket)

    def test_heartbeats_of_libzmq(self):
        socket = self.socket("PULL")
        socket.heartbeat_ivl, socket.heartbeat_ttl, socket.heartbeat_timeout = 50, 1500, LIMIT * 1000
        peer = self.connect("PUSH", socket)
        self.assertTrue(peer.line().startswith("ready PULL"))
        for _ in range(3):
            self.assertEqual(peer.line(), "ping 15")
        peer.say("send", b"still here")
        self.assertEqual(socket.recv(), b"still here")

    def test_our_heartbeats(self):
        socket = self.socket("PAIR")
        peer = self.connect("PAIR", socket)
        self.assertTrue(peer.line().startswith("ready PAIR"))
        for context in (b"", b"ctx1", b"sixteen bytes ok"):
            peer.say("ping", context)
            self.assertEqual(peer.line(), "pong " + text(context))

    def test_pieces(self):
        for sizes in [(1,), (10, 1, 53), (64,), (3, 70_000)]:
            with self.subTest(sizes=sizes):
                peer = self.peer("ROUTER")
                relay = Relay(peer.address, *sizes)
                self.exit.callback(relay.end)
                socket = self.socket("DEALER")
                socket.connect("tcp://" + relay.address)
                self.assertTrue(peer.line().startswith("ready DEALER"))
                self.exchange("ROUTER", "DEALER", peer, socket)

    def test_types_that_do_not_match(self):
        for we_listen in (True, False):
            with self.subTest(we_listen=we_listen):
                socket = self.socket("PUSH")
                peer = self.connect("REP", socket, we_listen=we_listen)
                # Either side may notice first.
                self.assertIn(
                    peer.line(), ("error socket_type socket type PUSH does not talk to REP", "closed")
                )

    def test_their_rejected_credentials(self):
        socket = self.socket("PUSH")
        socket.plain_username, socket.plain_password = b"admin", b"wrong"
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        peer = self.connect("PULL", socket, "server")
        self.assertEqual(peer.line(), f"credentials {text(b'admin')} {text(b'wrong')}")
        peer.process.stdin.write("reject 400\n")
        self.assertEqual(peer.line(), "closed")
        # As a status of authentication it reports only its own form of ERROR, which has a wrong first byte.
        self.assertTrue(monitor.poll(LIMIT * 1000))
        self.assertEqual(
            recv_monitor_message(monitor)["value"], zmq.PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND
        )
        socket.disable_monitor()

    def test_our_rejected_credentials(self):
        self.authenticator()
        socket = self.socket("PULL")
        socket.plain_server = True
        options = f"plain={text(b'admin')}:{text(b'wrong')}"
        peer = self.connect("PUSH", socket, options, we_listen=False)
        self.assertEqual(peer.line(), 'error refused peer sent ERROR "400"')

    def test_mechanisms_that_differ(self):
        socket = self.socket("PUSH")
        socket.plain_username, socket.plain_password = b"admin", b"secret"
        peer = self.connect("PULL", socket)
        # libzmq may close the connection before it has sent its mechanism.
        error = 'error mechanism greeting has the mechanism "PLAIN"; this side has NULL'
        self.assertIn(peer.line(), (error, "closed"))

    def test_many_messages(self):
        count = 20_000
        socket = self.socket("PUSH")
        socket.sndhwm = 0
        peer = self.connect("PULL", socket)
        self.assertTrue(peer.line().startswith("ready PUSH"))
        for number in range(count):
            socket.send_multipart([b"%d" % number, b"."])
        for number in range(count):
            self.assertEqual(peer.message(), [b"%d" % number, b"."])


if __name__ == "__main__":
    unittest.main()
