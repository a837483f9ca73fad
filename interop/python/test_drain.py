"""What Ctrl-C does to calls that are under way."""

import unittest

import grpc

from schema import demo_pb2, demo_pb2_grpc
from server import PATIENCE_SECONDS, Server


class Drain(unittest.TestCase):
    def setUp(self):
        # Long enough for a short stream, and not too long to wait for the end of an endless one.
        self.server = self.enterContext(Server("--drain-timeout", "5s"))
        self.channel = self.enterContext(grpc.insecure_channel(self.server.address))
        self.greeter = demo_pb2_grpc.GreeterStub(self.channel)

    def watch(self, count, interval_ms):
        request = demo_pb2.WatchRequest(count=count, interval_ms=interval_ms)
        return self.greeter.Watch(request, timeout=2 * PATIENCE_SECONDS)

    def test_without_connections(self):
        self.server.interrupt()
        self.assertEqual(self.server.exit_code(), 0)

    def test_with_an_idle_connection(self):
        self.greeter.Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        self.server.interrupt()
        self.assertEqual(self.server.exit_code(), 0)

    def test_a_short_stream_is_served_to_its_end(self):
        watching = self.watch(count=5, interval_ms=50)
        self.assertEqual(next(watching).n, 0)
        self.server.interrupt()
        self.assertEqual([tick.n for tick in watching], [1, 2, 3, 4])
        self.assertEqual(watching.code(), grpc.StatusCode.OK)
        self.assertEqual(self.server.exit_code(), 0)

    def test_an_endless_stream_gets_a_status(self):
        watching = self.watch(count=10_000, interval_ms=60_000)
        self.assertEqual(next(watching).n, 0)
        self.server.interrupt()
        with self.assertRaises(grpc.RpcError) as caught:
            list(watching)
        codes = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        self.assertIn(caught.exception.code(), codes, caught.exception)
        self.assertEqual(self.server.exit_code(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
