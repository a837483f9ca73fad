"""Peers of libzmq that speak MDP, PPP, TSP and FLP with components of ours: the library majortomo, and sockets of pyzmq
with the frames of the specifications."""

import tempfile
import threading
import time
import unittest

import majortomo
import zmq
from ours import LIMIT, Ours


class Case(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.addCleanup(self.context.destroy, linger=0)

    def ours(self, *arguments):
        ours = Ours(*arguments)
        self.addCleanup(ours.end)
        return ours

    def socket(self, kind, verb, endpoint, identity=None):
        socket = self.context.socket(kind)
        socket.linger = 0
        socket.rcvtimeo = LIMIT * 1000
        if identity:
            socket.routing_id = identity
        getattr(socket, verb)(endpoint)
        return socket

    def bound(self, kind):
        socket = self.socket(kind, "bind", "tcp://127.0.0.1:*")
        return socket, socket.last_endpoint.decode().rstrip("\0")

    def until_service(self, endpoint, service):
        """Waits until the broker knows a worker of the service."""
        client = self.socket(zmq.DEALER, "connect", endpoint)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            client.send_multipart([b"MDPC02", b"\x01", b"mmi.service", service])
            if client.recv_multipart() == [b"MDPC02", b"\x03", b"mmi.service", b"200"]:
                return
            time.sleep(0.01)
        self.fail("the service is not registered")


def skip(socket, *heartbeat):
    """Receives the next message that is not a heartbeat."""
    while (frames := socket.recv_multipart()) == list(heartbeat):
        pass
    return frames


class Majordomo(Case):
    def test_a_worker_and_a_client_of_the_specification(self):
        (endpoint,) = self.ours("broker").endpoints
        worker = self.socket(zmq.DEALER, "connect", endpoint)
        worker.send_multipart([b"MDPW02", b"\x01", b"echo"])
        client = self.socket(zmq.DEALER, "connect", endpoint)
        for body in ([b"one"], [b"two", b"", b"frames"]):
            client.send_multipart([b"MDPC02", b"\x01", b"echo", *body])
            frames = skip(worker, b"MDPW02", b"\x05")
            self.assertEqual(frames[:2] + frames[3:], [b"MDPW02", b"\x02", b"", *body])
            worker.send_multipart([b"MDPW02", b"\x03", frames[2], b"", b"part"])
            worker.send_multipart([b"MDPW02", b"\x04", frames[2], b"", *body])
            self.assertEqual(client.recv_multipart(), [b"MDPC02", b"\x02", b"echo", b"part"])
            self.assertEqual(client.recv_multipart(), [b"MDPC02", b"\x03", b"echo", *body])
        self.assertEqual(worker.recv_multipart(), [b"MDPW02", b"\x05"])
        worker.send_multipart([b"MDPW02", b"\x06"])
        worker.send_multipart([b"MDPW02", b"\x05"])
        self.assertEqual(skip(worker, b"MDPW02", b"\x05"), [b"MDPW02", b"\x06"])

    def test_peers_of_the_first_version(self):
        (endpoint,) = self.ours("broker").endpoints
        worker = self.socket(zmq.DEALER, "connect", endpoint)
        worker.send_multipart([b"", b"MDPW01", b"\x01", b"echo"])
        client = self.socket(zmq.REQ, "connect", endpoint)
        client.send_multipart([b"MDPC01", b"echo", b"body"])
        frames = skip(worker, b"", b"MDPW01", b"\x04")
        self.assertEqual(frames[:3] + frames[4:], [b"", b"MDPW01", b"\x02", b"", b"body"])
        worker.send_multipart([b"", b"MDPW01", b"\x03", frames[3], b"", b"done"])
        self.assertEqual(client.recv_multipart(), [b"MDPC01", b"echo", b"done"])

    def test_a_worker_of_majortomo(self):
        # Its messages begin with an empty frame. Its client has other numbers of commands than the specification.
        (endpoint,) = self.ours("broker").endpoints
        worker = majortomo.Worker(endpoint, "echo", heartbeat_interval=0.1, zmq_context=self.context)
        worker.connect()

        def work():
            for _ in range(2):
                client, body = worker.wait_for_request()
                worker.send_reply_partial(client, [b"part"])
                worker.send_reply_final(client, body)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        ours = self.ours("client", endpoint, "echo", "one", "two")
        for body in (b"one", b"two"):
            self.assertEqual(ours.read(), ("partial", [b"part"]))
            self.assertEqual(ours.read(), ("final", [body]))
        thread.join(LIMIT)
        worker.close()

    def test_our_worker_and_a_client_of_libzmq(self):
        (endpoint,) = self.ours("broker").endpoints
        worker = self.ours("worker", endpoint, "echo")
        self.until_service(endpoint, b"echo")
        client = self.socket(zmq.DEALER, "connect", endpoint)
        for number in range(100):
            body = b"%d" % number
            client.send_multipart([b"MDPC02", b"\x01", b"echo", body, b""])
            self.assertEqual(client.recv_multipart(), [b"MDPC02", b"\x02", b"echo", b"part"])
            self.assertEqual(client.recv_multipart(), [b"MDPC02", b"\x03", b"echo", body, b""])
            self.assertEqual(worker.read(), ("request", [body, b""]))

    def test_our_worker_and_our_client_with_a_broker_of_libzmq(self):
        broker, endpoint = self.bound(zmq.ROUTER)
        worker = self.ours("worker", endpoint, "echo")
        worker_id, *ready = broker.recv_multipart()
        self.assertEqual(ready, [b"MDPW02", b"\x01", b"echo"])
        client = self.ours("client", endpoint, "echo", "one", "two")
        replies = []
        for body in (b"one", b"two"):
            heartbeat = [worker_id, b"MDPW02", b"\x05"]
            broker.send_multipart(heartbeat)
            client_id, *request = skip(broker, *heartbeat)
            self.assertEqual(request, [b"MDPC02", b"\x01", b"echo", body])
            broker.send_multipart([worker_id, b"MDPW02", b"\x02", client_id, b"", body])
            for command in (b"\x03", b"\x04"):
                frames = skip(broker, *heartbeat)
                self.assertEqual(frames[:5], [worker_id, b"MDPW02", command, client_id, b""])
                reply = b"\x02" if command == b"\x03" else b"\x03"
                broker.send_multipart([client_id, b"MDPC02", reply, b"echo", *frames[5:]])
            replies += [client.read(), client.read()]
        self.assertEqual(
            replies,
            [("partial", [b"part"]), ("final", [b"one"]), ("partial", [b"part"]), ("final", [b"two"])],
        )
        # Disconnected: the worker registers again, on a new connection.
        broker.send_multipart([worker_id, b"MDPW02", b"\x06"])
        frames = skip(broker, worker_id, b"MDPW02", b"\x05")
        self.assertNotEqual(frames[0], worker_id)
        self.assertEqual(frames[1:], [b"MDPW02", b"\x01", b"echo"])


class Titanic(Case):
    def test_a_client_of_libzmq(self):
        with tempfile.TemporaryDirectory() as folder:
            ours = self.ours("titanic", folder)
            (endpoint,) = ours.endpoints
            client = self.socket(zmq.DEALER, "connect", endpoint)

            def call(service, *body):
                client.send_multipart([b"MDPC02", b"\x01", service, *body])
                frames = client.recv_multipart()
                self.assertEqual(frames[:3], [b"MDPC02", b"\x03", service])
                return frames[3][:3], frames[4:]

            status, (number,) = call(b"titanic.request", b"echo", b"body", b"second")
            self.assertEqual((status, len(number)), (b"200", 32))
            self.assertEqual(call(b"titanic.reply", number), (b"300", []))
            ours.end()
            ours = self.ours("titanic", folder)
            (endpoint,) = ours.endpoints
            client = self.socket(zmq.DEALER, "connect", endpoint)
            self.assertEqual(call(b"titanic.reply", number), (b"300", []))
            worker = self.socket(zmq.DEALER, "connect", endpoint)
            worker.send_multipart([b"MDPW02", b"\x01", b"echo"])
            frames = skip(worker, b"MDPW02", b"\x05")
            self.assertEqual(frames[4:], [b"body", b"second"])
            worker.send_multipart([b"MDPW02", b"\x04", frames[2], b"", b"reply", b""])
            while (reply := call(b"titanic.reply", number))[0] == b"300":
                time.sleep(0.01)
            self.assertEqual(reply, (b"200", [b"reply", b""]))
            self.assertEqual(call(b"titanic.close", number), (b"200", []))
            self.assertEqual(call(b"titanic.reply", number), (b"400", []))


class Pirate(Case):
    def test_workers_of_libzmq_with_and_without_heartbeats(self):
        clients, workers = self.ours("queue").endpoints
        paranoid = self.socket(zmq.DEALER, "connect", workers)
        paranoid.send(b"\x01")
        self.assertEqual(paranoid.recv_multipart(), [b"\x02"])
        client = self.socket(zmq.REQ, "connect", clients)
        client.send_multipart([b"one", b"two"])
        address, *rest = skip(paranoid, b"\x02")
        self.assertEqual(rest, [b"", b"one", b"two"])
        paranoid.send_multipart([address, b"", b"three"])
        self.assertEqual(client.recv_multipart(), [b"three"])
        paranoid.close()
        simple = self.socket(zmq.REQ, "connect", workers)
        simple.send(b"\x01")
        ours = self.ours("lazy", clients, "four", "five")
        for body in (b"four", b"five"):
            address, *rest = simple.recv_multipart()
            self.assertEqual(rest, [b"", body])
            simple.send_multipart([address, b"", body.upper()])
            self.assertEqual(ours.read(), ("reply", [body.upper()]))

    def test_our_workers_with_a_queue_of_libzmq(self):
        queue, endpoint = self.bound(zmq.ROUTER)
        for kind, delimiter in (("paranoid", []), ("simple", [b""])):
            worker = self.ours("pirate-worker", endpoint, kind)
            worker_id, *ready = queue.recv_multipart()
            self.assertEqual(ready, [*delimiter, b"\x01"])
            queue.send_multipart([worker_id, *delimiter, b"client", b"", b"body"])
            self.assertEqual(worker.read(), ("request", [b"body"]))
            frames = skip(queue, worker_id, b"\x02")
            self.assertEqual(frames, [worker_id, *delimiter, b"client", b"", b"body"])
            worker.end()

    def test_a_silent_queue_of_libzmq_gets_a_new_ready(self):
        queue, endpoint = self.bound(zmq.ROUTER)
        self.ours("pirate-worker", endpoint, "paranoid")
        first, *ready = queue.recv_multipart()
        frames = skip(queue, first, b"\x02")
        self.assertNotEqual(frames[0], first)
        self.assertEqual(frames[1:], ready)

    def test_our_client_with_a_server_of_libzmq_that_loses_a_request(self):
        server, endpoint = self.bound(zmq.ROUTER)
        ours = self.ours("lazy", endpoint, "body")
        lost, *request = server.recv_multipart()
        self.assertEqual(request, [b"", b"body"])
        again, *request = server.recv_multipart()
        self.assertNotEqual(lost, again)
        self.assertEqual(request, [b"", b"body"])
        server.send_multipart([again, b"", b"reply"])
        self.assertEqual(ours.read(), ("reply", [b"reply"]))


class Freelance(Case):
    def test_a_client_of_libzmq(self):
        with tempfile.TemporaryDirectory() as folder:
            name = f"ipc://{folder}/server"
            self.ours("freelance-server", name)
            client = self.socket(zmq.ROUTER, "connect", name)
            client.router_mandatory = 1
            end = time.monotonic() + LIMIT
            while True:
                try:
                    client.send_multipart([name.encode(), b"PING"])
                    break
                except zmq.ZMQError:
                    self.assertLess(time.monotonic(), end, "the server is not connected")
                    time.sleep(0.01)
            self.assertEqual(client.recv_multipart(), [name.encode(), b"PONG"])
            client.send_multipart([name.encode(), b"control", b"one", b"two"])
            self.assertEqual(client.recv_multipart(), [name.encode(), b"control", b"one", b"two"])

    def test_a_server_of_libzmq(self):
        with tempfile.TemporaryDirectory() as folder:
            name = f"ipc://{folder}/server"
            server = self.socket(zmq.ROUTER, "bind", name, identity=name.encode())
            ours = self.ours("freelance-client", f"ipc://{folder}/none", name, "body")
            while True:
                client, *frames = server.recv_multipart()
                if frames != [b"PING"]:
                    break
                server.send_multipart([client, b"PONG"])
            control, *body = frames
            self.assertEqual(body, [b"body"])
            server.send_multipart([client, control, b"reply"])
            self.assertEqual(ours.read(), ("reply", [b"reply"]))


if __name__ == "__main__":
    unittest.main()
