"""Foreign callers inside TLS: grpcio, grpcurl, curl, Python's ssl, and the errors that callers without TLS get."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import unittest

import grpc

from certificates import Authority
from schema import demo_pb2, demo_pb2_grpc
from server import PATIENCE_SECONDS, Server

GRPCURL = os.environ.get("SWITCHBOARD_PEER") or "grpcurl"


def setUpModule():
    global authority
    authority = unittest.enterModuleContext(Authority("interop"))


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)


class TlsTest(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.certificate, cls.key = authority.issue("server")
        pair = ("--tls-cert", str(cls.certificate), "--tls-key", str(cls.key))
        cls.server = cls.enterClassContext(Server(*pair, *cls.flags))

    def channel(self, **credentials):
        roots = authority.ca.read_bytes()
        made = grpc.ssl_channel_credentials(root_certificates=roots, **credentials)
        return self.enterContext(grpc.secure_channel(self.server.address, made))

    def greeter(self, **credentials):
        return demo_pb2_grpc.GreeterStub(self.channel(**credentials))

    def curl(self, *options, scheme="https"):
        return run(
            *("curl", "--silent", "--show-error", "--max-time", PATIENCE_SECONDS, "--cacert", authority.ca),
            *("--write-out", r"\n%{http_code} %{http_version}", *options),
            *("--header", "content-type: application/json", "--data", '{"name":"Ada"}'),
            f"{scheme}://{self.server.address}/demo.v1.Greeter/Greet",
        )


class Calls(TlsTest):
    def test_grpc_unary(self):
        answer = self.greeter().Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        self.assertEqual(answer.text, "hello Ada")

    def test_grpc_streams(self):
        greeter = self.greeter()
        ticks = greeter.Watch(demo_pb2.WatchRequest(count=3), timeout=PATIENCE_SECONDS)
        self.assertEqual([tick.n for tick in ticks], [0, 1, 2])
        notes = (demo_pb2.Note(text=text) for text in ("one", "two"))
        answers = greeter.Chat(notes, timeout=PATIENCE_SECONDS)
        self.assertEqual([note.text for note in answers], ["ONE", "TWO"])

    def test_grpcurl(self):
        options = ("-cacert", authority.ca, "-max-time", PATIENCE_SECONDS)
        listed = run(GRPCURL, *options, self.server.address, "list")
        self.assertIn("demo.v1.Greeter", listed.stdout.split(), listed.stderr)
        called = run(GRPCURL, *options, "-d", '{"name":"Ada"}', self.server.address, "demo.v1.Greeter/Greet")
        self.assertEqual(json.loads(called.stdout or "null"), {"text": "hello Ada"}, called.stderr)

    def test_grpcurl_without_tls_is_refused(self):
        options = ("-plaintext", "-max-time", PATIENCE_SECONDS)
        self.assertNotEqual(run(GRPCURL, *options, self.server.address, "list").returncode, 0)

    def test_connect_by_curl(self):
        for option, version in (("--http1.1", "1.1"), ("--http2", "2")):
            with self.subTest(option):
                ended = self.curl(option)
                body, _, outcome = ended.stdout.rpartition("\n")
                self.assertEqual((body, outcome), ('{"text":"hello Ada"}', f"200 {version}"), ended.stderr)

    def test_curl_without_tls_gets_an_error_text(self):
        ended = self.curl(scheme="http")
        self.assertIn("this port takes TLS only", ended.stdout, ended.stderr)
        self.assertTrue(ended.stdout.endswith("400 1.1"), ended.stdout)

    def test_tls_1_2_and_no_older(self):
        context = ssl.create_default_context(cafile=authority.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE_SECONDS) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
                self.assertEqual(wrapped.version(), "TLSv1.2")
        old = run("openssl", "s_client", "-tls1_1", "-connect", self.server.address)
        self.assertNotEqual(old.returncode, 0, old.stdout)


class ClientCertificates(TlsTest):
    @classmethod
    def setUpClass(cls):
        cls.flags = ("--tls-client-ca", str(authority.ca))
        super().setUpClass()

    def test_client_with_one_is_served(self):
        certificate, key = authority.issue("alice")
        shown = {"private_key": key.read_bytes(), "certificate_chain": certificate.read_bytes()}
        answer = self.greeter(**shown).Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        self.assertEqual(answer.text, "hello Ada")
        ended = self.curl("--cert", certificate, "--key", key)
        self.assertTrue(ended.stdout.startswith('{"text":"hello Ada"}'), ended.stderr)

    def test_client_without_one_is_refused(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.greeter().Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE, caught.exception)
        ended = self.curl()
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("alert", ended.stderr)


class Reload(TlsTest):
    def serial(self):
        """The serial number of the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=authority.ca)
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE_SECONDS) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
                return wrapped.getpeercert()["serialNumber"]

    def test_sighup_loads_the_new_certificate_and_closes_no_connection(self):
        greeter = self.greeter()
        greeter.Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        before = self.serial()
        certificate, key = authority.issue("renewed")
        shutil.copyfile(certificate, self.certificate)
        shutil.copyfile(key, self.key)
        self.server.reload_certificates()
        while self.serial() == before:
            pass
        answer = greeter.Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        self.assertEqual(answer.text, "hello Ada")


del TlsTest  # Has no cases of its own.

if __name__ == "__main__":
    unittest.main(verbosity=2)
