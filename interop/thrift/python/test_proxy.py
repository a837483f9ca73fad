"""`switchboard proxy` between the Python library of Thrift and servers and callers that write something else."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket

import test_client
import test_protobuf
import thrift_test as t
from greeter import ADA, GREETER, GreetRequest, Missing
from test_client import BY_POST, PATIENCE_MS, WAYS, Server
from test_server import WAYS as SERVERS
from test_server import run, server

FOLDER = pathlib.Path(__file__).parents[1]
PROTO = ["--proto", "greet/v1/greet.proto", "-I", str(FOLDER / "proto")]
FILE = ["--thrift", str(FOLDER / "thrift" / "thrift_test.thrift")]
GREET = "greet.v1.Greeter/Greet"
# What `ADA` is in JSON.
ADA_IN_JSON = {
    "name": "Ada",
    "age": 2**32 - 1,
    "titles": ["Lady", "é"],
    "scores": {"x": str(-(2**63)), "y": "5"},
    "phone": str(2**64 - 1),
    "shy": False,
    "mood": "MOOD_FINE",
    "key": "AP8=",
    "weight": -0.5,
    "friends": [{"name": "Bob"}],
}
# The service of protobuf as the Python server has it: the file says what its exception is called.
WITH_EXCEPTION = """
namespace rs greet.v1
struct Person { 1: string name }
struct GreetRequest { 1: Person person }
struct GreetReply { 1: string text }
exception Missing { 1: string message } (switchboard.code = "not_found")
service Greeter { GreetReply Greet(1: GreetRequest request) throws (1: Missing missing) }
"""


@contextlib.contextmanager
def proxied(to, *arguments):
    """The port of a proxy in front of the server at this URL."""
    command = [os.environ["SWITCHBOARD_BIN"], "proxy", "--to", to, "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline().rsplit(":", 1)[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def connected(way, port):
    """A client of the greeter at this port."""
    transport = TSocket("127.0.0.1", port)
    transport.setTimeout(PATIENCE_MS)
    transport.open()
    protocol = {**WAYS, **BY_POST}[way](transport)
    try:
        yield t.Client(protocol, GREETER)
    finally:
        protocol.trans.close()
        transport.close()


def greet(port, request, *more):
    command = [os.environ["SWITCHBOARD_BIN"], "call", f"127.0.0.1:{port}", GREET, "-d", json.dumps(request)]
    return run(*command, "--compact", *more)


class Behind(Server):
    """`thrift-server` behind a proxy, by another wire than Thrift; `port` is that of the proxy."""

    def __init__(self, options, *arguments):
        self.options, self.arguments = options, arguments

    def __enter__(self):
        super().__enter__()
        self.proxy = proxied(f"127.0.0.1:{self.port}?{self.options}", *self.arguments)
        self.port = self.proxy.__enter__()
        return self

    def __exit__(self, *_):
        self.proxy.__exit__(None, None, None)
        super().__exit__()


class CallersOfProtobuf(test_protobuf.Protobuf):
    """The cases of `test_protobuf` by a proxy, behind which there is gRPC."""

    SERVER = ("wire=grpc", *PROTO)

    @classmethod
    def setUpClass(cls):
        cls.server = Behind(*cls.SERVER)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def test_too_much(self):
        """A request that nests deeper than readers go, and one that is too large."""

        def check(client):
            # The server behind takes 1 MiB.
            with self.assertRaises(TApplicationException) as thrown:
                client.Greet(GreetRequest(test_protobuf.Person(name="x" * (2 << 20))))
            self.assertIn("resource_exhausted: ", thrown.exception.message)
            self.assertEqual(client.Greet(GreetRequest(ADA)).person, ADA)
            # Without a frame it is the end of the connection.
            deep = ADA
            for _ in range(40):
                deep = test_protobuf.Person(name="Ada", friends=[deep])
            with self.assertRaises(TApplicationException) as thrown:
                client.Greet(GreetRequest(deep))
            self.assertEqual(thrown.exception.type, TApplicationException.PROTOCOL_ERROR)

        self.everywhere(check)


class CallersOfProtobufInJson(CallersOfProtobuf):
    """The same with JSON behind."""

    SERVER = ("wire=connect&codec=json", *PROTO)


class CallersByTheFile(test_client.Cases):
    """The cases of `test_client` by a proxy, behind which there is JSON."""

    @classmethod
    def setUpClass(cls):
        cls.server = Behind("wire=grpc", *FILE)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def test_double(self):
        self.echoes("testDouble", 5.235098235, 0.0, -1.5e300)

        def check(client):
            # JSON has no such number.
            with self.assertRaises(TApplicationException) as thrown:
                client.testDouble(float("inf"))
            self.assertEqual(thrown.exception.type, TApplicationException.PROTOCOL_ERROR)

        self.everywhere(check)


class Servers(unittest.TestCase):
    """The Python library serves, callers write protobuf and JSON."""

    def test_messages_of_every_type(self):
        for way, ([protocol, transport], options) in SERVERS.items():
            with (
                self.subTest(way),
                server([protocol, transport, "greeter"], options) as url,
                proxied(url, *PROTO) as port,
            ):
                for front in ["grpc", "connect", "native"]:
                    done = greet(port, {"person": ADA_IN_JSON}, "--wire", front)
                    self.assertEqual(done.returncode, 0, done.stdout)
                    reply = json.loads(done.stdout)
                    self.assertEqual(reply, {"text": "hello Ada", "person": ADA_IN_JSON})
                body = json.dumps({"person": {"name": "Bob"}}).encode()
                request = urllib.request.Request(f"http://127.0.0.1:{port}/{GREET}", body)
                request.add_header("content-type", "application/json")
                with urllib.request.urlopen(request) as answer:
                    self.assertEqual(json.load(answer), {"text": "hello Bob", "person": {"name": "Bob"}})

    def test_exceptions(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "greet.thrift"
            file.write_text(WITH_EXCEPTION)
            for schema, says in [
                (PROTO, "failed_precondition (9): the method threw the exception of field 1 of its result"),
                ([*PROTO, "--thrift", str(file)], "not_found (5): the person is missing"),
            ]:
                with server(["binary", "framed", "greeter"], "") as url, proxied(url, *schema) as port:
                    thrown = greet(port, {})
                    self.assertNotEqual(thrown.returncode, 0)
                    self.assertIn(says, thrown.stdout)
                    done = greet(port, {"person": {"name": "Ada"}})
                    self.assertEqual(json.loads(done.stdout)["text"], "hello Ada")

    def test_too_deep(self):
        with server(["binary", "framed", "greeter"], "") as url, proxied(url, *PROTO) as port:
            deep = {"name": "Ada"}
            for _ in range(45):
                deep = {"name": "Ada", "friends": [deep]}
            refused = greet(port, {"person": deep})
            self.assertIn("resource_exhausted (8): the message nests deeper than 64", refused.stdout)

    def test_thrift_to_thrift(self):
        """Bytes, whatever is known of them: exceptions too."""
        for schema in [[], PROTO]:
            with server(["compact", "framed", "greeter"], "protocol=compact") as url, proxied(url, *schema) as port:
                for way in ["binary, framed", "compact, buffered", "header, binary, zlib", "compact, HTTP"]:
                    with self.subTest(way), connected(way, port) as client:
                        reply = client.Greet(GreetRequest(ADA))
                        self.assertEqual((reply.text, reply.person), ("hello Ada", ADA))
                        with self.assertRaises(Missing):
                            client.Greet(GreetRequest())


if __name__ == "__main__":
    if "THRIFT_SERVER" not in os.environ:
        sys.exit("THRIFT_SERVER names the program to test")
    unittest.main()
