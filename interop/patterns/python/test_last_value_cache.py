"""Our last value cache between publishers and subscribers of libzmq."""

import time

import zmq
from pattern import LIMIT, Case


class CacheTest(Case):
    def setUp(self):
        super().setUp()
        self.cache = self.peer("last-value-cache")
        publishers, self.subscribers = self.cache.ready()
        # XPUB shows when the cache has subscribed.
        self.publisher = self.connect(zmq.XPUB, publishers)
        self.assertEqual(self.publisher.recv(), b"\x01")

    def subscriber(self, topic):
        socket = self.connect(zmq.SUB, self.subscribers)
        socket.setsockopt(zmq.SUBSCRIBE, topic)
        return socket

    def test_a_late_subscriber_receives_the_last_value_once(self):
        for topic, value in [(b"a", b"old"), (b"a", b"new"), (b"b", b"other")]:
            self.publisher.send_multipart([topic, value])
        self.cache.until("topics 2", "topics")
        first = self.subscriber(b"a")
        self.assertEqual(first.recv_multipart(), [b"a", b"new"])
        second = self.subscriber(b"")
        self.assertEqual(second.recv_multipart(), [b"a", b"new"])
        self.assertEqual(second.recv_multipart(), [b"b", b"other"])
        self.publisher.send_multipart([b"a", b"newest"])
        for socket in (first, second):
            self.assertEqual(socket.recv_multipart(), [b"a", b"newest"])

    def test_a_subscriber_that_reconnects_receives_the_value_again(self):
        self.publisher.send_multipart([b"a", b"1"])
        self.cache.until("topics 1", "topics")
        socket = self.subscriber(b"a")
        self.assertEqual(socket.recv_multipart(), [b"a", b"1"])
        socket.disconnect(self.subscribers)
        socket.connect(self.subscribers)
        self.assertEqual(socket.recv_multipart(), [b"a", b"1"])

    def test_an_ended_subscription(self):
        socket = self.subscriber(b"a")
        socket.setsockopt(zmq.SUBSCRIBE, b"end")
        socket.setsockopt(zmq.UNSUBSCRIBE, b"a")
        end = time.monotonic() + LIMIT
        while not socket.poll(20):
            self.assertLess(time.monotonic(), end)
            self.publisher.send_multipart([b"a", b"x"])
            self.publisher.send_multipart([b"end", b"x"])
        self.assertEqual(socket.recv_multipart()[0], b"end")
