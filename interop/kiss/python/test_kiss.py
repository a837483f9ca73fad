"""Calls our server over kiss-rpc and gRPC, lets our client call serve.py, and has a proxy of ours between."""

import json
import os
import socket
import subprocess
import sys
import unittest
import urllib.request

import frames
import grpc
import message

SAY, NOTE = 3405691582, 7

# As flatc writes it in JSON.
MESSAGE = {
    "text": "häy", "number": -(2**63), "none": 0, "flag": False, "mood": "Odd", "marks": "Read Kept",
    "path": [{"id": 1, "at": -0.25, "label": [1, 2, 65535]}], "bytes": [0, 255, 7], "numbers": [1, -1, 2**63 - 1],
    "tags": [{"key": "a"}, {"key": "", "weight": 1.5}], "words": ["x", ""],
    "manner_type": "Shout", "manner": {"times": 3}, "next": {"text": "inner"}, "type": 1e300,
    "manners_type": ["low", "Shout"], "manners": [{"to": "x"}, {"times": 2}],
}


def start(*command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line.startswith("listening on "), line
    return process, line.removeprefix("listening on ").strip()


def end(process):
    process.terminate()
    process.wait()
    process.stdout.close()


def expected(sent):
    want = {**message.defaults(), **sent}
    if "next" in want:
        want["next"] = expected(want["next"])
    return want


class OurServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process, cls.address = start(os.environ["KISS_SERVER"])

    @classmethod
    def tearDownClass(cls):
        end(cls.process)

    def setUp(self):
        host, port = self.address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.stream = self.socket.makefile("rb")

    def tearDown(self):
        self.stream.close()
        self.socket.close()

    def test_messages_come_back_in_each_way_of_compression(self):
        sequence = 0
        for sent in [{}, message.full(), {"text": "long " * 1000}]:
            for compression in [frames.NONE, frames.DYNAMIC, frames.FORCED]:
                sequence += 1
                body = message.write(sent)
                self.socket.sendall(frames.frame(SAY, sequence, body, compression))
                function, number, kind, status, answer, packed = frames.read(self.stream)
                self.assertEqual((function, number, kind, status), (SAY, sequence, compression, 0))
                dynamic = compression == frames.DYNAMIC and len(answer) >= 200
                self.assertEqual(packed, dynamic or compression == frames.FORCED)
                self.assertEqual(message.read(answer), expected(sent))

    def test_failures_are_one_bit(self):
        self.socket.sendall(frames.frame(SAY, 1, message.write({"text": "fail"}), status=frames.NON_BLOCKING))
        self.assertEqual(frames.read(self.stream), (SAY, 1, 0, frames.NON_BLOCKING | frames.FAILED, b"", False))
        # An unknown function, and a body that is not a table.
        for function, body in [(1, b""), (SAY, b"\xff" * 40)]:
            self.socket.sendall(frames.frame(function, 2, body))
            self.assertEqual(frames.read(self.stream), (function, 2, 0, frames.FAILED, b"", False))

    def test_heartbeats_come_back(self):
        beat = frames.HEADER.pack(*frames.BEGIN, frames.SERIALISATION, 0, 0, 0, 77, 0)
        self.socket.sendall(beat)
        self.assertEqual(self.stream.read(len(beat)), beat)

    def test_concurrent_calls_of_one_connection_get_their_own_replies(self):
        calls = [frames.frame(SAY, 1000 - n, message.write({"number": n})) for n in range(200)]
        self.socket.sendall(b"".join(calls) + frames.frame(NOTE, 5, message.write({}), status=frames.ONEWAY))
        seen = {}
        for _ in calls:
            _, sequence, _, status, body, _ = frames.read(self.stream)
            self.assertEqual(status, 0)
            seen[sequence] = message.read(body)["number"]
        self.assertEqual(seen, {1000 - n: n for n in range(200)})

    def test_grpc_carries_flatbuffers_without_a_subtype(self):
        with grpc.insecure_channel(self.address) as channel:
            say = channel.unary_unary("/interop.kiss.Echo/Say", message.write, message.read)
            self.assertEqual(say(message.full(), timeout=20), expected(message.full()))
            with self.assertRaises(grpc.RpcError) as failed:
                say({"text": "fail"}, timeout=20)
            self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)
            count = channel.unary_stream("/interop.kiss.Echo/Count", message.write, message.read)
            self.assertEqual([reply["number"] for reply in count({"number": 3}, timeout=20)], [0, 1, 2])


class OurTerminal(unittest.TestCase):
    def test_tables_from_json_are_read_by_this_library_and_its_tables_are_json(self):
        process, address = start(sys.executable, "-B", "serve.py")
        try:
            url = f"{address}?wire=kiss&function=interop.kiss.Echo/Say:{SAY}"
            for sent in ({"text": "inner"}, MESSAGE):
                command = [os.environ["SWITCHBOARD_BIN"], "call", url, "Echo/Say", "--fbs", "../fbs/echo.fbs"]
                command += ["-d", json.dumps(sent), "--json", "--compact"]
                done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
                (answer,) = json.loads(done.stdout)["messages"]
                self.assertEqual(answer, sent)
        finally:
            end(process)


# What a server made of the file answers in JSON.
NOTHING = {
    "number": -7, "flag": True, "mood": 5, "marks": 0, "type": 0.0,
    "path": [], "bytes": [], "numbers": [], "tags": [], "words": [], "manners": [],
}
IN_JSON = {
    **NOTHING, "text": "häy", "number": -(2**63), "none": 0, "flag": False, "mood": -1, "marks": 9,
    "path": [{"id": 1, "at": -0.25, "label": [1, 2, 65535]}], "bytes": [0, 255, 7], "numbers": [1, -1, 2**63 - 1],
    "tags": [{"key": "a", "weight": 0.5}, {"key": "", "weight": 1.5}], "words": ["x", ""],
    "manner": {"Shout": {"times": 3}}, "next": {**NOTHING, "text": "inner"}, "type": 1e300,
    "manners": [{"Low": {"to": "x"}}, {"Shout": {"times": 2}}],
}


class OurProxy(unittest.TestCase):
    def proxied(self, to, *arguments):
        command = [os.environ["SWITCHBOARD_BIN"], "proxy", "--to", to, "--listen", "127.0.0.1:0"]
        process, address = start(*command, "--fbs", "../fbs/echo.fbs", *arguments)
        self.addCleanup(end, process)
        return address.removeprefix("http://")

    def test_callers_in_json_reach_this_library(self):
        process, address = start(sys.executable, "-B", "serve.py")
        self.addCleanup(end, process)
        proxy = self.proxied(f"{address}?wire=kiss&function=interop.kiss.Echo/Say:{SAY}")
        for sent, wanted in [({}, NOTHING), (MESSAGE, IN_JSON), (IN_JSON, IN_JSON)]:
            request = urllib.request.Request(
                f"http://{proxy}/interop.kiss.Echo/Say",
                json.dumps(sent).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=20) as answer:
                self.assertEqual(json.load(answer), wanted)

    def test_this_library_reaches_servers_in_json_and_messagepack(self):
        process, address = start(os.environ["KISS_SERVER"])
        self.addCleanup(end, process)
        for behind in ["wire=connect", "wire=rpcx&codec=msgpack"]:
            proxy = self.proxied(f"{address}?{behind}", "--function", f"interop.kiss.Echo/Say:{SAY}")
            host, port = proxy.split(":")
            with socket.create_connection((host, int(port)), timeout=20) as connection:
                stream = connection.makefile("rb")
                for sequence, sent in enumerate([{}, message.full(), {"text": "long " * 1000}]):
                    connection.sendall(frames.frame(SAY, sequence, message.write(sent), frames.DYNAMIC))
                    _, number, _, status, answer, _ = frames.read(stream)
                    self.assertEqual((number, status), (sequence, 0))
                    self.assertEqual(message.read(answer), expected(sent))
                stream.close()
            with grpc.insecure_channel(proxy) as channel:
                say = channel.unary_unary("/interop.kiss.Echo/Say", message.write, message.read)
                self.assertEqual(say(message.full(), timeout=20), expected(message.full()))


class OurClient(unittest.TestCase):
    def test_our_client_calls_this_server(self):
        process, address = start(sys.executable, "-B", "serve.py")
        try:
            subprocess.run([os.environ["KISS_CLIENT"], address], check=True, timeout=60)
        finally:
            end(process)


if __name__ == "__main__":
    unittest.main()
