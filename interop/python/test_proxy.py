"""`switchboard proxy` between the programs of others: grpcurl and rpcx's Go client in front, servers of Switchboard and
of rpcx behind."""

import json
import os
import pathlib
import subprocess
import unittest
import urllib.error
import urllib.request

import test_grpcurl
from server import PATIENCE_SECONDS, Server, end_with_parent

RPCX_PEER = os.environ.get("RPCX_PEER") or "rpcx-peer"
ECHO_PROTO = pathlib.Path(__file__).resolve().parents[1] / "rpcx" / "proto" / "echo.proto"

UNAVAILABLE = 14


class Rpcx:
    """rpcx's Go server, as a context manager."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [RPCX_PEER, "server", "tcp@127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,
        )
        self.address = self.process.stdout.readline().strip().removeprefix("listening on tcp@")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class GrpcToNative(test_grpcurl.ByReflection):
    """All cases of grpcurl with a Switchboard server behind the proxy on the native wire; the proxy has its schema."""

    @classmethod
    def setUpClass(cls):
        behind = cls.enterClassContext(Server())
        test_grpcurl.server = cls.enterClassContext(Server("--to", behind.address, "--reflect", command="proxy"))


class GrpcToNativeAsBytes(test_grpcurl.WithSchemaFiles):
    """The same with schema files of grpcurl's own, of which the proxy knows nothing."""

    @classmethod
    def setUpClass(cls):
        behind = cls.enterClassContext(Server())
        test_grpcurl.server = cls.enterClassContext(Server("--to", behind.address, command="proxy"))


class ToRpcx(unittest.TestCase):
    def setUp(self):
        self.behind = self.enterContext(Rpcx())
        to = f"{self.behind.address}?wire=rpcx"
        self.proxy = self.enterContext(Server("--to", to, "--proto", str(ECHO_PROTO), command="proxy"))
        test_grpcurl.server = self.proxy

    def post(self, path, message):
        """The answer to a unary call of Connect."""
        request = urllib.request.Request(
            f"http://{self.proxy.address}/{path}",
            json.dumps(message).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def test_every_case_of_rpcx_as_bytes(self):
        command = [RPCX_PEER, "proxied", f"tcp@{self.proxy.address}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_grpc(self):
        note = {"text": "quiet", "number": "7", "data": "AAH/"}
        ended = test_grpcurl.grpcurl("interop.v1.Echo/Shout", messages=[note])
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(json.loads(ended.stdout), note | {"text": "QUIET"})

    def test_json_of_connect(self):
        # Protobuf on rpcx, as the schema has it; and JSON there too where there is none.
        self.assertEqual(self.post("interop.v1.Echo/Shout", {"text": "quiet"}), {"text": "QUIET"})
        self.assertEqual(self.post("Arith/Mul", {"A": 6, "B": 7}), {"C": 42})

    def test_unknown_method(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.post("Arith/Nothing", {})
        with refused.exception as answer:
            self.assertEqual(json.load(answer)["code"], "unimplemented")

    def test_server_that_is_gone(self):
        self.behind.process.kill()
        self.behind.process.wait()
        ended = test_grpcurl.grpcurl("interop.v1.Echo/Shout", messages=[{}])
        code = test_grpcurl.EXIT_CODE_OF_STATUS + UNAVAILABLE
        self.assertEqual(ended.returncode, code, ended.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
