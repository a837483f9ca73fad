"""Sockets of libzmq that log in, call services, talk to a ROUTER, and use other transports."""

import contextlib
import json
import os
import socket
import ssl
import tempfile
import threading
import time
import unittest

import zmq
from peer import LIMIT, Relay, text
from test_server import Case

PING, FAIL, WHO = (b"interop.v1.Clock/" + name for name in (b"Ping", b"Fail", b"Who"))


def message(value):
    return json.dumps({"text": value}).encode()


class Calls(Case):
    def test_a_req_calls_a_method(self):
        peer = self.socket("REQ")
        for at in range(20):
            peer.send_multipart([PING, message(f"hello {at}")])
            status, reply = peer.recv_multipart()
            self.assertEqual((status, json.loads(reply)), (b"OK", f"hello {at}"))
        peer.send_multipart([FAIL, b"x-a: 1\ntimeout-ms: 5000", message("no clock")])
        self.assertEqual(peer.recv_multipart(), [b"NOT_FOUND", b"no clock"])
        peer.send_multipart([b"interop.v1.Clock.Ping", message("dots")])
        self.assertEqual(peer.recv_multipart(), [b"OK", b'"dots"'])
        peer.send_multipart([b"interop.v1.Clock/Pong", b"{}"])
        status, reply = peer.recv_multipart()
        self.assertEqual(status, b"UNIMPLEMENTED")
        self.assertIn(b"interop.v1.Clock has Ping", reply)
        peer.send_multipart([PING, b"not json"])
        self.assertEqual(peer.recv_multipart()[0], b"INVALID_ARGUMENT")
        self.assertEqual(self.call("beside"), "beside")

    def test_a_message_alone_calls_the_default_method(self):
        peer = self.socket("REQ")
        peer.send(message("alone"))
        self.assertEqual(peer.recv_multipart(), [b'"alone"'])
        peer.send(b"not json")
        self.assertEqual(peer.recv_multipart()[0], b"INVALID_ARGUMENT")

    def test_a_req_with_numbers(self):
        peer = self.socket("REQ", req_correlate=1, req_relaxed=1)
        # The replies to requests that others have replaced are dropped by libzmq.
        for at in range(10):
            peer.send_multipart([PING, message(f"{at}")])
        self.assertEqual(peer.recv_multipart(), [b"OK", b'"9"'])

    def test_a_dealer_has_many_calls_in_flight(self):
        peer = self.socket("DEALER", sndhwm=0, rcvhwm=0)
        count = 3000
        for at in range(count):
            peer.send_multipart([b"%d" % at, b"", PING, message(str(at))])
        replies = {}
        for _ in range(count):
            number, empty, status, reply = peer.recv_multipart()
            self.assertEqual((empty, status), (b"", b"OK"))
            replies[int(number)] = json.loads(reply)
        self.assertEqual(replies, {at: str(at) for at in range(count)})
        # Without an envelope.
        peer.send_multipart([PING, message("bare")])
        self.assertEqual(peer.recv_multipart(), [b"OK", b'"bare"'])

    def test_large_messages(self):
        peer = self.socket("REQ")
        large = "x" * 1_000_000
        peer.send_multipart([PING, message(large)])
        status, reply = peer.recv_multipart()
        self.assertEqual((status, json.loads(reply)), (b"OK", large))

    def test_a_queue_of_zeromq_between_clients_and_the_server(self):
        # A proxy of libzmq, whose DEALER puts the identities of its clients in front of the requests.
        front, back = self.context.socket(zmq.ROUTER), self.socket("DEALER")
        front.linger = 0
        port = front.bind_to_random_port("tcp://127.0.0.1")
        stop = self.context.socket(zmq.PAIR)
        stop.bind("inproc://stop")
        control = self.context.socket(zmq.PAIR)
        control.connect("inproc://stop")
        proxy = threading.Thread(target=zmq.proxy_steerable, args=(front, back, None, control), daemon=True)
        proxy.start()
        clients = [self.socket("REQ", address=f"tcp://127.0.0.1:{port}") for _ in range(5)]
        for at, client in enumerate(clients):
            client.send_multipart([PING, message(f"{at}")])
        for at, client in enumerate(clients):
            self.assertEqual(client.recv_multipart(), [b"OK", b'"%d"' % at])
        stop.send(b"TERMINATE")
        proxy.join(LIMIT)

    def test_other_types_are_refused(self):
        for kind in ("REP", "PAIR"):
            before = self.server.closed("socket_type")
            peer = self.socket(kind)
            self.server.until_closed("socket_type", before + 1)
            peer.close()


class Logins(Case):
    OPTIONS = ("plain",)

    def test_a_subscriber_logs_in(self):
        peer = self.subscriber(b"t/", plain_username=b"alice", plain_password=b"secret")
        self.server.ask("publish t/1 x")
        self.assertEqual(peer.recv_multipart(), [b"t/1", b"x"])

    def test_calls_have_the_caller_of_the_login(self):
        peer = self.socket("REQ", plain_username=b"alice", plain_password=b"secret")
        peer.send_multipart([WHO, b"{}"])
        self.assertEqual(peer.recv_multipart(), [b"OK", b'"alice"'])
        peer.send_multipart([WHO, b"authorization: Basic AAAA", b"{}"])
        self.assertEqual(peer.recv_multipart()[0], b"UNAUTHENTICATED")

    def test_others_are_refused(self):
        for user, password in ((b"alice", b"wrong"), (b"bob", b"secret"), (b"bearer", b"secret")):
            before = self.server.closed("credentials")
            peer = self.socket("SUB", plain_username=user, plain_password=password)
            self.server.until_closed("credentials", before + 1)
            peer.close()
        # Without credentials, by NULL. Either side may notice first.
        count = lambda: self.server.closed("mechanism") + self.server.closed("peer")
        before, peer, end = count(), self.socket("SUB"), time.monotonic() + LIMIT
        while count() == before:
            self.assertLess(time.monotonic(), end)
        peer.close()


class Router(Case):
    OPTIONS = ("router",)

    def receive(self):
        name, identity, *frames = self.server.ask("receive").split(" ")
        assert name == "message", name
        return identity, [b"" if frame == "-" else bytes.fromhex(frame) for frame in frames]

    def test_messages_have_identities(self):
        dealer = self.socket("DEALER", routing_id=b"us")
        dealer.send_multipart([b"hello", b"", b"there"])
        self.assertEqual(self.receive(), (text(b"us"), [b"hello", b"", b"there"]))
        self.assertEqual(self.server.ask(f"send {text(b'us')} {text(b'a')} - {text(b'b')}"), "sent")
        self.assertEqual(dealer.recv_multipart(), [b"a", b"", b"b"])
        unnamed = self.socket("DEALER")
        unnamed.send(b"x")
        identity, frames = self.receive()
        self.assertEqual((identity[:2], len(identity), frames), ("00", 10, [b"x"]))
        self.assertEqual(self.server.ask(f"send {identity} {text(b'y')}"), "sent")
        self.assertEqual(unnamed.recv(), b"y")
        self.assertIn("not_found", self.server.ask(f"send {text(b'nemo')} -").lower().replace(" ", "_"))
        # REQ peers call services on the same port.
        req = self.socket("REQ")
        req.send_multipart([PING, message("beside")])
        self.assertEqual(req.recv_multipart(), [b"OK", b'"beside"'])

    def test_an_identity_is_free_after_its_peer(self):
        first = self.socket("DEALER", routing_id=b"one")
        first.send(b"1")
        self.receive()
        second = self.socket("DEALER", routing_id=b"one")
        self.server.until_closed("identity", 1)
        self.server.ask(f"send {text(b'one')} {text(b'to the first')}")
        self.assertEqual(first.recv(), b"to the first")
        first.close()
        # libzmq connects again until the identity is free.
        second.send(b"2")
        self.assertEqual(self.receive(), (text(b"one"), [b"2"]))

    def test_a_router_of_libzmq(self):
        router = self.socket("ROUTER", routing_id=b"theirs", probe_router=1)
        self.assertEqual(self.receive(), (text(b"theirs"), [b""]))
        self.server.ask(f"send {text(b'theirs')} {text(b'x')}")
        # Our side has no identity.
        self.assertEqual(router.recv_multipart()[1:], [b"x"])


class Dealer(Case):
    OPTIONS = ("dealer",)

    def test_rep_peers_work_in_turn(self):
        workers = [self.socket("REP") for _ in range(2)]
        done = {}
        for at in range(20):
            self.assertEqual(self.server.ask(f"work {text(b'%d' % at)} - {text(b'task')}"), "sent")
            while True:
                ready = [worker for worker in workers if worker.poll(20)]
                if ready:
                    break
            for worker in ready:
                self.assertEqual(worker.recv_multipart(), [b"task"])
                worker.send_multipart([b"done", b"%d" % workers.index(worker)])
            name, *frames = self.server.ask("result").split(" ")
            self.assertEqual((name, frames[:3]), ("message", [text(b"%d" % at), "-", text(b"done")]))
            done.setdefault(bytes.fromhex(frames[3]), []).append(at)
        # The second worker may have connected late.
        self.assertGreater(len(done[b"0"]), 5)
        self.assertGreater(len(done[b"1"]), 5)


class TlsProxy:
    """Accepts plaintext, and continues with TLS to an address."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                host, port = self.target.split(":")
                server = context.wrap_socket(socket.create_connection((host, int(port))))
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client, server):
        # One thread for both directions: a connection of TLS is not for two at once.
        server.setblocking(False)
        with contextlib.suppress(OSError), client, server:
            poller = zmq.Poller()
            poller.register(client, zmq.POLLIN)
            poller.register(server, zmq.POLLIN)
            while True:
                ready = dict(poller.poll(LIMIT * 1000))
                if client.fileno() in ready:
                    data = client.recv(65536)
                    if not data:
                        return
                    server.setblocking(True)
                    server.sendall(data)
                    server.setblocking(False)
                with contextlib.suppress(ssl.SSLWantReadError):
                    while data := server.recv(65536):
                        client.sendall(data)
                    return

    def end(self):
        self.listener.close()


class Transports(Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="zmtp-")
        self.path = os.path.join(self.folder.name, "socket")
        self.OPTIONS = ("tls", f"unix={self.path}")
        super().setUp()
        self.exit.callback(self.folder.cleanup)

    def check(self, address):
        """Every pattern over a transport."""
        subscriber = self.subscriber(b"t/", address=address)
        self.server.ask("publish t/1 x")
        self.assertEqual(subscriber.recv_multipart(), [b"t/1", b"x"])
        worker, pusher = self.socket("PULL", address=address), self.socket("PUSH", address=address)
        large = b"y" * 300_000
        pusher.send_multipart([b"job", large])
        self.assertEqual(worker.recv_multipart(), [b"job", large])
        publisher = self.socket("PUB", address=address)
        while not subscriber.poll(20):
            publisher.send_multipart([b"t/2", b"z"])
        self.assertEqual(subscriber.recv_multipart(), [b"t/2", b"z"])
        req = self.socket("REQ", address=address)
        req.send_multipart([PING, message("x" * 100_000)])
        self.assertEqual(len(req.recv_multipart()[1]), 100_002)

    def test_ipc(self):
        self.check("ipc://" + self.path)

    def test_tls(self):
        proxy = TlsProxy(self.server.addresses[1])
        self.exit.callback(proxy.end)
        self.check("tcp://" + proxy.address)

    def test_greetings_in_pieces_beside_silent_and_slow_connections(self):
        connect = lambda: self.exit.enter_context(socket.create_connection(self.server.address.split(":"), LIMIT))
        # Silent ones, at every step of a greeting, and of other protocols.
        greeting = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL" + b"\0" * 48
        for begin in (*(greeting[:at] for at in (0, 1, 9, 10, 11, 12, 63, 64)), b"P", b"GET /", b"*1\r\n"):
            connect().sendall(begin)
        slow = connect()

        def trickle():
            with contextlib.suppress(OSError):
                for at in range(len(greeting)):
                    slow.sendall(greeting[at : at + 1])
                    time.sleep(0.05)

        threading.Thread(target=trickle, daemon=True).start()
        for sizes in [(1,), (10, 1, 53), (64,), (3, 70_000)]:
            with self.subTest(sizes=sizes):
                relay = Relay(self.server.address, *sizes)
                self.exit.callback(relay.end)
                peer = self.socket("REQ", address="tcp://" + relay.address)
                for at in range(5):
                    peer.send_multipart([PING, message(str(at))])
                    self.assertEqual(peer.recv_multipart(), [b"OK", b'"%d"' % at])
                self.assertEqual(self.call("beside"), "beside")


class Pairs(Case):
    OPTIONS = ("pair",)

    def test_a_pair_of_the_application(self):
        peer = self.socket("PAIR")
        for frames in [[b"one"], [b"a", b"", b"x" * 100_000]]:
            peer.send_multipart(frames)
            self.assertEqual(peer.recv_multipart(), frames)
        second = self.socket("PAIR")
        second.send(b"is not read")
        self.server.until_closed("pair", 1)
        self.assertFalse(second.poll(50))


if __name__ == "__main__":
    unittest.main()
