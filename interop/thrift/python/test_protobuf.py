"""The Python library of Thrift calls a service of protobuf."""

import os
import sys
import unittest

from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket

import thrift_test as t
from greeter import ADA, FRIEND, GREETER, ODD, GreetRequest, Odd, Person
from test_client import BY_POST, PATIENCE_MS, WAYS, Server
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol

class Protobuf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def everywhere(self, check, service=GREETER, multiplexed=None):
        for name, way in {**WAYS, **BY_POST}.items():
            transport = TSocket("127.0.0.1", self.server.port)
            transport.setTimeout(PATIENCE_MS)
            transport.open()
            protocol = way(transport)
            if multiplexed:
                protocol = TMultiplexedProtocol(protocol, multiplexed)
            with self.subTest(name):
                check(t.Client(protocol, service))
            protocol.trans.close()
            transport.close()

    def test_messages_of_every_type(self):
        def check(client):
            reply = client.Greet(GreetRequest(ADA))
            self.assertEqual((reply.text, reply.person), ("hello Ada", ADA))

        self.everywhere(check)
        for service in ["Greeter", "greet.v1.Greeter"]:
            self.everywhere(check, multiplexed=service)

    def test_defaults(self):
        """What a request leaves out is empty, and what has no presence is there in replies."""

        def check(client):
            reply = client.Greet(GreetRequest(Person(name="Bob")))
            self.assertEqual(reply.person, FRIEND)

        self.everywhere(check)

    def test_statuses(self):
        def check(client):
            for request in [GreetRequest(), GreetRequest(Person(age=5))]:
                with self.assertRaises(TApplicationException) as thrown:
                    client.Greet(request)
                self.assertEqual(thrown.exception.type, TApplicationException.INTERNAL_ERROR)
                self.assertEqual(thrown.exception.message, "not_found: the person is missing")
            with self.assertRaises(TApplicationException) as thrown:
                client.Watch(GreetRequest(ADA))
            self.assertEqual(thrown.exception.type, TApplicationException.UNKNOWN_METHOD)
            self.assertIn("streams, which Thrift cannot carry", thrown.exception.message)
            with self.assertRaises(TApplicationException) as thrown:
                client.Greet(GreetRequest(Person(name="Ada", age=-1)))
            self.assertEqual(thrown.exception.type, TApplicationException.PROTOCOL_ERROR)
            self.assertIn("field age does not fit -1", thrown.exception.message)
            self.assertEqual(client.Greet(GreetRequest(ADA)).text, "hello Ada")

        self.everywhere(check)

    def test_other_types(self):
        def check(client):
            with self.assertRaises(TApplicationException) as thrown:
                client.Greet(Odd("Ada"))
            self.assertEqual(thrown.exception.type, TApplicationException.PROTOCOL_ERROR)
            self.assertIn("person is a struct and not of type 11", thrown.exception.message)

        self.everywhere(check, ODD)


if __name__ == "__main__":
    if "THRIFT_SERVER" not in os.environ:
        sys.exit("THRIFT_SERVER names the program to test")
    unittest.main()
