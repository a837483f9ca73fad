"""The Channelz service of the server, read by the Channelz client of Python."""

import datetime
import ipaddress
import time
import unittest

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from certificates import Authority
from schema import demo_pb2, demo_pb2_grpc
from server import PATIENCE_SECONDS, Server

UNKNOWN_ID = 1 << 40
SERVICE = "grpc.channelz.v1.Channelz"


class ChannelzTest(unittest.TestCase):
    """A server for each case: they count calls."""

    def setUp(self):
        self.server = self.enterContext(Server("--channelz"))
        self.channelz = channelz_pb2_grpc.ChannelzStub(self.connect())

    def connect(self):
        # Channels with the same options share their connections without this option.
        options = [("grpc.use_local_subchannel_pool", 1)]
        return self.enterContext(grpc.insecure_channel(self.server.address, options=options))

    def ask(self, method, **fields):
        request = getattr(channelz_pb2, f"{method}Request")(**fields)
        return getattr(self.channelz, method)(request, timeout=PATIENCE_SECONDS)

    def only_server(self):
        answer = self.ask("GetServers")
        self.assertTrue(answer.end)
        self.assertEqual(len(answer.server), 1)
        return answer.server[0]

    def sockets(self, **fields):
        return self.ask("GetServerSockets", server_id=self.only_server().ref.server_id, **fields)

    def socket(self, channelz_id):
        return self.ask("GetSocket", socket_id=channelz_id).socket

    def refused(self, code, method, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            self.ask(method, **fields)
        self.assertEqual(caught.exception.code(), code, caught.exception)
        return caught.exception.details()


class Servers(ChannelzTest):
    def test_calls_are_counted(self):
        before = self.only_server()
        greeter = demo_pb2_grpc.GreeterStub(self.connect())
        for name in ("Ada", "Zoë"):
            greeter.Greet(demo_pb2.GreetRequest(name=name), timeout=PATIENCE_SECONDS)
        with self.assertRaises(grpc.RpcError):
            greeter.Greet(demo_pb2.GreetRequest(), timeout=PATIENCE_SECONDS)
        after = self.ask("GetServer", server_id=before.ref.server_id).server
        # The first question is one of them.
        self.assertEqual(after.data.calls_succeeded - before.data.calls_succeeded, 3)
        self.assertEqual(after.data.calls_failed - before.data.calls_failed, 1)
        self.assertEqual(after.data.calls_started, after.data.calls_succeeded + after.data.calls_failed)
        self.assert_is_recent(after.data.last_call_started_timestamp)

    def test_listener(self):
        (listener,) = self.only_server().listen_socket
        self.assertEqual(listener.name, f"tcp://{self.server.address}")
        local = self.socket(listener.socket_id).local.tcpip_address
        self.assertEqual((ipaddress.ip_address(local.ip_address).compressed, local.port), ("127.0.0.1", self.server.port))

    def test_lists_begin_at_the_requested_id(self):
        server = self.only_server()
        for start, found in ((server.ref.server_id, 1), (server.ref.server_id + 1, 0)):
            answer = self.ask("GetServers", start_server_id=start)
            self.assertEqual((len(answer.server), answer.end), (found, True))

    def test_no_channels(self):
        answer = self.ask("GetTopChannels")
        self.assertEqual((len(answer.channel), answer.end), (0, True))

    def assert_is_recent(self, timestamp):
        age = datetime.datetime.now(datetime.timezone.utc) - timestamp.ToDatetime(datetime.timezone.utc)
        self.assertLess(abs(age), datetime.timedelta(seconds=2 * PATIENCE_SECONDS))


class Sockets(ChannelzTest):
    def test_counts_and_addresses(self):
        known = self.sockets().socket_ref
        greeter = demo_pb2_grpc.GreeterStub(self.connect())
        greeter.Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        ticks = greeter.Watch(demo_pb2.WatchRequest(count=3), timeout=PATIENCE_SECONDS)
        self.assertEqual(len(list(ticks)), 3)
        notes = (demo_pb2.Note(text=text) for text in ("one", "two"))
        self.assertEqual(len(list(greeter.Chat(notes, timeout=PATIENCE_SECONDS))), 2)
        with self.assertRaises(grpc.RpcError):
            greeter.Greet(demo_pb2.GreetRequest(), timeout=PATIENCE_SECONDS)

        (other,) = (ref for ref in self.sockets().socket_ref if ref not in known)
        socket = self.socket(other.socket_id)
        self.assertEqual(socket.ref, other)
        data = socket.data
        self.assertEqual((data.streams_started, data.streams_succeeded, data.streams_failed), (4, 4, 0))
        self.assertEqual((data.messages_received, data.messages_sent), (5, 6))
        for name in ("last_remote_stream_created", "last_message_sent", "last_message_received"):
            self.assertTrue(data.HasField(f"{name}_timestamp"), name)
        self.assertEqual(socket.local.tcpip_address.port, self.server.port)
        remote = socket.remote.tcpip_address
        self.assertEqual(other.name, f"127.0.0.1:{remote.port}")
        self.assertEqual(ipaddress.ip_address(remote.ip_address).compressed, "127.0.0.1")
        self.assertFalse(socket.HasField("security"))

    def test_call_that_is_given_up(self):
        known = self.sockets().socket_ref
        greeter = demo_pb2_grpc.GreeterStub(self.connect())
        call = greeter.Watch(demo_pb2.WatchRequest(count=1000, interval_ms=1000), timeout=PATIENCE_SECONDS)
        self.assertEqual(next(call).n, 0)
        (other,) = (ref.socket_id for ref in self.sockets().socket_ref if ref not in known)
        self.assertEqual(self.socket(other).data.streams_failed, 0)
        call.cancel()
        # The server receives the cancel some time later: polls until then.
        end = time.monotonic() + PATIENCE_SECONDS
        while self.socket(other).data.streams_failed == 0:
            self.assertLess(time.monotonic(), end)
        data = self.socket(other).data
        self.assertEqual((data.streams_started, data.streams_succeeded, data.streams_failed), (1, 0, 1))

    def test_pages(self):
        for _ in range(4):
            greeter = demo_pb2_grpc.GreeterStub(self.connect())
            greeter.Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)
        whole = self.sockets()
        ids = [ref.socket_id for ref in whole.socket_ref]
        self.assertEqual((len(ids), ids, whole.end), (5, sorted(ids), True))
        seen, start = [], 0
        while True:
            page = self.sockets(start_socket_id=start, max_results=2)
            self.assertLessEqual(len(page.socket_ref), 2)
            seen += (ref.socket_id for ref in page.socket_ref)
            if page.end:
                break
            start = seen[-1] + 1
        self.assertEqual(seen, ids)


class UnknownIds(ChannelzTest):
    def test_unknown_ids(self):
        server_id = self.only_server().ref.server_id
        for method, field, channelz_id in (
            ("GetServer", "server_id", UNKNOWN_ID),
            ("GetServer", "server_id", -1),
            ("GetServerSockets", "server_id", UNKNOWN_ID),
            ("GetSocket", "socket_id", UNKNOWN_ID),
            ("GetSocket", "socket_id", server_id),
            ("GetChannel", "channel_id", UNKNOWN_ID),
            ("GetSubchannel", "subchannel_id", server_id),
        ):
            with self.subTest(method, id=channelz_id):
                details = self.refused(grpc.StatusCode.NOT_FOUND, method, **{field: channelz_id})
                self.assertIn(str(channelz_id), details)

    def test_pages_of_nonsense(self):
        server_id = self.only_server().ref.server_id
        code = grpc.StatusCode.INVALID_ARGUMENT
        self.assertIn("-1", self.refused(code, "GetServerSockets", server_id=server_id, max_results=-1))
        self.assertIn("-2", self.refused(code, "GetServers", start_server_id=-2))


class Schema(ChannelzTest):
    def test_schema_is_the_public_one(self):
        """Every message, field and method of ours has the name, number and type that the public schema gives it."""
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.connect()))
        ours = pool.FindServiceByName(SERVICE)
        theirs = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"]
        self.assertEqual(sorted(method.name for method in ours.methods), sorted(method.name for method in theirs.methods))
        self.assert_same_messages(ours.file.message_types_by_name, channelz_pb2.DESCRIPTOR.message_types_by_name)

    def assert_same_messages(self, ours, theirs):
        for name, message in ours.items():
            fields = {field.name: (field.number, field.type) for field in message.fields}
            public = {field.name: (field.number, field.type) for field in theirs[name].fields}
            self.assertEqual(fields, public, name)
            self.assert_same_messages(message.nested_types_by_name, theirs[name].nested_types_by_name)


class Elsewhere(unittest.TestCase):
    def test_off_by_default(self):
        server = self.enterContext(Server())
        channel = self.enterContext(grpc.insecure_channel(server.address))
        with self.assertRaises(grpc.RpcError) as caught:
            request = channelz_pb2.GetServersRequest()
            channelz_pb2_grpc.ChannelzStub(channel).GetServers(request, timeout=PATIENCE_SECONDS)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_tls(self):
        authority = self.enterContext(Authority("channelz"))
        certificate, key = authority.issue("server")
        server = self.enterContext(Server("--channelz", "--tls-cert", str(certificate), "--tls-key", str(key)))
        credentials = grpc.ssl_channel_credentials(root_certificates=authority.ca.read_bytes())
        channel = self.enterContext(grpc.secure_channel(server.address, credentials))
        channelz = channelz_pb2_grpc.ChannelzStub(channel)
        (own,) = channelz.GetServers(channelz_pb2.GetServersRequest(), timeout=PATIENCE_SECONDS).server
        request = channelz_pb2.GetServerSocketsRequest(server_id=own.ref.server_id)
        (ref,) = channelz.GetServerSockets(request, timeout=PATIENCE_SECONDS).socket_ref
        request = channelz_pb2.GetSocketRequest(socket_id=ref.socket_id)
        security = channelz.GetSocket(request, timeout=PATIENCE_SECONDS).socket.security
        self.assertRegex(security.tls.standard_name, r"^TLS_(AES|CHACHA20|ECDHE)_[A-Z0-9_]+$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
