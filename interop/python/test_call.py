"""`switchboard call` against a server of Python grpcio, with and without reflection.

Its reflection is v1alpha alone, which is what a caller falls back to.
"""

import base64
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import grpc
from google.protobuf import any_pb2, timestamp_pb2
from grpc_reflection.v1alpha import reflection
from grpc_tools import protoc

from server import PATIENCE_SECONDS, server_command

FOLDER = pathlib.Path(__file__).resolve().parent
FILES = ("zoo/zoo.proto", "zoo/animal.proto", "zoo/hidden.proto")
EXIT_CODE_OF_STATUS = 64

_generated = tempfile.TemporaryDirectory(prefix="switchboard-interop-")
SET = pathlib.Path(_generated.name) / "zoo.binpb"
_exit_code = protoc.main(
    [
        "protoc",
        f"--proto_path={FOLDER}",
        f"--proto_path={pathlib.Path(protoc.__file__).parent / '_proto'}",
        f"--python_out={_generated.name}",
        f"--grpc_python_out={_generated.name}",
        f"--descriptor_set_out={SET}",
        "--include_imports",
        *FILES,
    ]
)
if _exit_code != 0:
    raise SystemExit(f"the schemas in {FOLDER} do not compile")
sys.path.insert(0, _generated.name)

from zoo import animal_pb2, hidden_pb2, zoo_pb2, zoo_pb2_grpc  # noqa: E402


def any_of(message):
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


class Zoo(zoo_pb2_grpc.ZooServicer):
    def Look(self, request, context):
        for name, value in context.invocation_metadata():
            if name in ("x-echo", "x-echo-bin"):
                context.send_initial_metadata(((name, value),))
                context.set_trailing_metadata(((f"t-{name}", value),))
        if request.code:
            status = zoo_pb2.Status(
                code=request.code, message="no", details=[any_of(hidden_pb2.Note(text="why"))]
            )
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            code = next(code for code in grpc.StatusCode if code.value[0] == request.code)
            context.abort(code, "no")
        seen = getattr(request, "with")
        if not seen.type_url:
            seen = any_of(hidden_pb2.Note(text=request.name))
        if request.name == "stranger":
            seen = any_pb2.Any(type_url="type.example/far.Away", value=b"\x08\x01")
        return zoo_pb2.LookReply(
            seen=seen, at=timestamp_pb2.Timestamp(seconds=1), data=bytes(request.bytes)
        )

    def Watch(self, request, context):
        for legs in (2, 4):
            yield animal_pb2.Animal(name=request.name, legs=legs, diet=animal_pb2.DIET_PLANTS)

    def Count(self, requests, context):
        reply = zoo_pb2.CountReply()
        for animal in requests:
            reply.legs[animal.name] += animal.legs
        return reply

    def Rename(self, requests, context):
        for animal in requests:
            animal.name = animal.name.upper()
            yield animal


def serve(reflected, compression=None):
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(max_workers=8), compression=compression
    )
    zoo_pb2_grpc.add_ZooServicer_to_server(Zoo(), server)
    if reflected:
        reflection.enable_server_reflection(("zoo.v1.Zoo", reflection.SERVICE_NAME), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    return server, address


def call(address, *arguments, code=0):
    """Runs `switchboard call`; returns what it printed, and on standard error."""
    done = subprocess.run(
        [*server_command(), "call", address, *arguments, "--timeout", f"{PATIENCE_SECONDS}s"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def values(text):
    decoder, at, found = json.JSONDecoder(), 0, []
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


class Reflected(unittest.TestCase):
    """With the schema that the server has."""

    options = ()
    reflected = True
    compression = None

    @classmethod
    def setUpClass(cls):
        cls.server, cls.address = serve(cls.reflected, cls.compression)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop(None).wait()

    def values(self, method, data, *options):
        return values(call(self.address, f"zoo.v1.Zoo/{method}", "-d", data, *self.options, *options)[0])

    def test_every_kind(self):
        animal = {"name": "Ada", "legs": "2", "diet": "DIET_PLANTS"}
        self.assertEqual(
            self.values("Watch", '{"name": "Ada"}'), [animal, {**animal, "legs": "4"}]
        )
        two = '{"name": "a", "legs": 2} {"name": "b", "legs": "4"}'
        self.assertEqual(self.values("Count", two), [{"legs": {"a": "2", "b": "4"}}])
        self.assertEqual(
            self.values("Rename", two), [{"name": "A", "legs": "2"}, {"name": "B", "legs": "4"}]
        )

    def test_any_of_a_type_that_nothing_refers_to(self):
        [reply] = self.values("Look", '{"name": "x"}')
        self.assertEqual(reply["seen"], {"@type": "type.googleapis.com/zoo.hidden.Note", "text": "x"})
        self.assertEqual(reply["at"], "1970-01-01T00:00:01Z")

    def test_any_of_an_unknown_type(self):
        [reply] = self.values("Look", '{"name": "stranger"}')
        self.assertEqual(reply["seen"], {"@type": "type.example/far.Away", "value": "CAE="})

    def test_any_in_a_request(self):
        sent = {"@type": "type.googleapis.com/zoo.animal.Animal", "name": "Ada", "legs": "2"}
        [reply] = self.values("Look", json.dumps({"with": sent}))
        self.assertEqual(reply["seen"], sent)

    def test_every_code_with_its_details(self):
        for code in (code.value[0] for code in grpc.StatusCode if code is not grpc.StatusCode.OK):
            exit_code = EXIT_CODE_OF_STATUS + code
            look = ("zoo.v1.Zoo/Look", "-d", json.dumps({"code": code}), *self.options)
            _, text = call(self.address, *look, code=exit_code)
            self.assertIn(f" ({code}): no\n", text)
            self.assertIn('{"@type":"type.googleapis.com/zoo.hidden.Note","text":"why"}', text)
            object_, _ = call(self.address, *look, "--json", code=exit_code)
            status = json.loads(object_)["status"]
            self.assertEqual(status["number"], code)
            self.assertEqual(status["details"][0]["text"], "why")

    def test_metadata_goes_both_ways(self):
        binary = base64.b64encode(bytes(range(256))).decode()
        for name, value in (("x-echo", "hi"), ("x-echo-bin", binary)):
            [reply] = self.values("Look", "{}", "-H", f"{name}: {value}", "--json")
            self.assertEqual(reply["metadata"][name], [value])
            self.assertEqual(reply["trailers"][f"t-{name}"], [value])

    def test_large_messages(self):
        look = ("zoo.v1.Zoo/Look", "-d", '{"bytes": 5000000}', *self.options)
        _, text = call(self.address, *look, code=EXIT_CODE_OF_STATUS + 8)
        self.assertIn("--max-message-size", text)
        printed, _ = call(self.address, *look, "--max-message-size", "8MiB", "--json")
        self.assertEqual(len(base64.b64decode(json.loads(printed)["messages"][0]["data"])), 5_000_000)


class Compressed(Reflected):
    compression = grpc.Compression.Gzip


class WithFiles(Reflected):
    """A server without reflection, and .proto files."""

    reflected = False
    options = ("--proto", FILES[0], "--proto", FILES[2], "-I", str(FOLDER))


class WithSet(Reflected):
    """A server without reflection, and a descriptor set of protoc."""

    reflected = False
    options = ("--descriptor-set", str(SET))


class Schemas(unittest.TestCase):
    def test_list_and_describe(self):
        server, address = serve(True)
        try:
            services, _ = call(address, "list")
            self.assertEqual(
                services.splitlines(), ["grpc.reflection.v1alpha.ServerReflection", "zoo.v1.Zoo"]
            )
            source, _ = call(address, "describe", "zoo.v1.Zoo.Look")
            self.assertIn("google.protobuf.Any with = 4;", source)
            _, text = call(address, "zoo.v1.Zoo/Lok", code=2)
            self.assertIn("did you mean Look?", text)
        finally:
            server.stop(None).wait()

    def test_no_reflection(self):
        server, address = serve(False)
        try:
            for verb in ("list", "zoo.v1.Zoo/Look"):
                _, text = call(address, verb, code=EXIT_CODE_OF_STATUS + 12)
                self.assertIn("the server offers no reflection: give the schema with --proto", text)
        finally:
            server.stop(None).wait()

    def test_wrong_wires(self):
        server, address = serve(True)
        try:
            for wire in ("connect", "grpc-web", "native"):
                options = ("--wire", wire, *WithSet.options)
                done = subprocess.run(
                    [*server_command(), "call", address, "zoo.v1.Zoo/Look", *options],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=2 * PATIENCE_SECONDS,
                    check=False,
                )
                self.assertGreater(done.returncode, EXIT_CODE_OF_STATUS, done.stderr)
                self.assertIn("try --wire grpc", done.stderr)
        finally:
            server.stop(None).wait()


if __name__ == "__main__":
    unittest.main()
