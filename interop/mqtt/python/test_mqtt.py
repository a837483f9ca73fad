"""paho-mqtt, mosquitto_pub and mosquitto_sub on a server with the plugin for MQTT."""

import contextlib
import os
import pathlib
import queue
import shutil
import socket
import ssl
import subprocess
import tempfile
import unittest

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from server import LIMIT, Server

VERSIONS = (paho.MQTTv31, paho.MQTTv311, paho.MQTTv5)


class Client:
    """A client of paho whose events are in queues."""

    def __init__(self, port, client_id="", version=paho.MQTTv5, transport="tcp", clean=True, expiry=0, **options):
        v5 = version == paho.MQTTv5
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if v5 else clean,
            protocol=version,
            transport=transport,
            **options.pop("client", {}),
        )
        self.connects, self.messages, self.acks, self.ends = (queue.Queue() for _ in range(4))
        self.paho.on_connect = lambda client, data, flags, reason, properties: self.connects.put(
            (flags.session_present, reason, properties)
        )
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_subscribe = lambda client, data, mid, reasons, properties: self.acks.put(reasons)
        self.paho.on_publish = lambda client, data, mid, reason, properties: self.acks.put(reason)
        self.paho.on_disconnect = lambda client, data, flags, reason, properties: self.ends.put(reason)
        for prepare in options.pop("prepare", ()):
            prepare(self.paho)
        arguments = {"keepalive": 60, **options}
        if v5:
            properties = arguments.setdefault("properties", Properties(PacketTypes.CONNECT))
            properties.SessionExpiryInterval = expiry
            arguments["clean_start"] = clean
        self.paho.connect("127.0.0.1", port, **arguments)
        self.paho.loop_start()
        self.session_present, self.reason, self.properties = self.connects.get(timeout=LIMIT)

    def subscribe(self, *arguments, **options):
        self.paho.subscribe(*arguments, **options)
        return [reason.value for reason in self.acks.get(timeout=LIMIT)]

    def publish(self, topic, payload, qos=1, **options):
        self.paho.publish(topic, payload, qos, **options)
        return self.acks.get(timeout=LIMIT)

    def next(self):
        return self.messages.get(timeout=LIMIT)

    def text(self):
        message = self.next()
        return message.topic, message.payload.decode()

    def end(self):
        self.paho.disconnect()
        self.paho.loop_stop()

    def cut(self):
        """Ends the connection without DISCONNECT."""
        self.paho.loop_stop()
        self.paho.socket().shutdown(socket.SHUT_RDWR)
        self.paho.socket().close()


class Case(unittest.TestCase):
    arguments = ()

    def setUp(self):
        self.server = self.start(*self.arguments)

    def start(self, *arguments):
        server = Server(*arguments)
        self.addCleanup(server.end)
        return server

    def client(self, *arguments, **options):
        client = Client(options.pop("port", self.server.port), *arguments, **options)

        def end():
            with contextlib.suppress(Exception):
                client.end()

        self.addCleanup(end)
        return client


class Messages(Case):
    def test_every_version_and_qos(self):
        clients = [self.client(f"v{version}", version) for version in VERSIONS]
        for client in clients:
            self.assertEqual(client.subscribe("a/+/#", 2), [2])
        for version in VERSIONS:
            publisher = self.client(f"p{version}", version)
            for qos in (0, 1, 2):
                publisher.publish("a/b/c", f"{version} {qos}", qos)
                for client in clients:
                    message = client.next()
                    self.assertEqual((message.topic, message.qos, message.retain), ("a/b/c", qos, False))
                    self.assertEqual(message.payload.decode(), f"{version} {qos}")

    def test_native_entries_arrive(self):
        client = self.client("c", paho.MQTTv311)
        client.subscribe("quotes/+", 1)
        self.server.ask("publish quotes/acme 12.5")
        self.assertEqual(client.text(), ("quotes/acme", "12.5"))

    def test_many_messages_in_order(self):
        for qos in (0, 1, 2):
            client, publisher = self.client(f"c{qos}"), self.client(f"p{qos}")
            client.subscribe(f"n/{qos}", qos)
            for number in range(2000):
                publisher.paho.publish(f"n/{qos}", str(number), qos)
            for number in range(2000):
                self.assertEqual(client.text(), (f"n/{qos}", str(number)))

    def test_properties(self):
        client, publisher = self.client("c"), self.client("p")
        properties = Properties(PacketTypes.SUBSCRIBE)
        properties.SubscriptionIdentifier = 300
        client.subscribe("t", options=SubscribeOptions(qos=1), properties=properties)
        properties = Properties(PacketTypes.PUBLISH)
        properties.ContentType = "text/plain"
        properties.ResponseTopic = "replies/1"
        properties.CorrelationData = b"\x00\x01"
        properties.MessageExpiryInterval = 100
        properties.UserProperty = [("a", "1"), ("a", "2")]
        publisher.publish("t", "x", properties=properties)
        received = client.next().properties
        self.assertEqual(received.SubscriptionIdentifier, [300])
        self.assertEqual(received.UserProperty, [("a", "1"), ("a", "2")])
        self.assertEqual((received.ContentType, received.ResponseTopic), ("text/plain", "replies/1"))
        self.assertTrue(90 < received.MessageExpiryInterval <= 100)

    def test_retained(self):
        publisher = self.client("p")
        for payload in ("old", "new"):
            publisher.publish("r/a", payload, retain=True)
        publisher.publish("r/b", "x", retain=True)
        publisher.publish("r/b", "", retain=True)
        client = self.client("c", paho.MQTTv311)
        client.subscribe("r/#", 1)
        message = client.next()
        self.assertEqual((message.topic, message.payload, message.retain), ("r/a", b"new", True))
        publisher.publish("r/c", "live")
        self.assertEqual(client.text(), ("r/c", "live"))

    def test_shared_subscription(self):
        members = [self.client(f"m{number}") for number in range(3)]
        for member in members:
            member.subscribe("$share/g/jobs/#", 1)
        publisher = self.client("p")
        for number in range(90):
            publisher.publish(f"jobs/{number}", str(number))
        seen = [member.text()[1] for member in members for _ in range(30)]
        self.assertEqual(sorted(seen, key=int), [str(number) for number in range(90)])

    def test_websockets(self):
        def at(path):
            return lambda client: client.ws_set_options(path=path)

        for version in (paho.MQTTv311, paho.MQTTv5):
            client = self.client(f"w{version}", version, transport="websockets", prepare=[at("/mqtt")])
            client.subscribe("w", 1)
            client.publish("w", "x" * 100_000)
            self.assertEqual(client.text(), ("w", "x" * 100_000))


class Sessions(Case):
    def test_while_away(self):
        for version in (paho.MQTTv311, paho.MQTTv5):
            name = f"s{version}"
            client = self.client(name, version, clean=False, expiry=3600)
            self.assertFalse(client.session_present)
            client.subscribe(f"away/{version}", 1)
            client.end()
            for number in range(500):
                self.server.ask(f"publish away/{version} {number}")
            client = self.client(name, version, clean=False, expiry=3600)
            self.assertTrue(client.session_present)
            for number in range(500):
                self.assertEqual(client.text()[1], str(number))

    def test_beyond_history(self):
        server = self.start("history=10")
        client = self.client("c", clean=False, expiry=3600, port=server.port)
        client.subscribe("t", 1)
        client.end()
        for number in range(100):
            server.ask(f"publish t {number}")
        client = self.client("c", clean=False, expiry=3600, port=server.port)
        self.assertFalse(client.session_present)
        (_, reason), (_, missing) = client.properties.UserProperty
        self.assertEqual(reason, "expired")
        # The server may have sent the first ones before it saw the end of the connection.
        received = [int(client.text()[1])]
        while received[-1] < 99:
            received.append(int(client.text()[1]))
        self.assertEqual(int(missing) + len(received), 100)

    def test_takeover_and_will(self):
        watcher = self.client("watcher")
        watcher.subscribe("will/#", 1)
        def with_will(client):
            client.will_set("will/x", "gone", 1)

        killed = self.client("killed", prepare=[with_will])
        killed.cut()
        self.assertEqual(watcher.text(), ("will/x", "gone"))
        first = self.client("same")
        self.client("same").subscribe("x", 0)
        self.assertEqual(first.ends.get(timeout=LIMIT).value, 0x8E)


class Credentials(Case):
    arguments = ("auth",)

    def test_basic_and_token(self):
        def with_user(name, password):
            return lambda client: client.username_pw_set(name, password)

        for version in (paho.MQTTv311, paho.MQTTv5):
            for name, password, accepted in [
                ("carol", "p4ss", True),
                ("carol", "wrong", False),
                ("", "t0ken", True),
            ]:
                client = self.client(f"{name}{password}", version, prepare=[with_user(name, password)])
                self.assertEqual(client.reason.value, 0 if accepted else 0x86, (name, password))
            self.assertEqual(self.client("none", version).reason.value, 0x86)


class Tls(Case):
    def setUp(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.certificate, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            + ["-keyout", str(key), "-out", str(self.certificate)],
            check=True,
            capture_output=True,
        )
        self.server = self.start(f"tls={self.certificate},{key}")

    def test_tls(self):
        context = ssl.create_default_context(cafile=self.certificate)
        client = self.client("c", port=self.server.tls_port, prepare=[lambda client: client.tls_set_context(context)])
        client.subscribe("t", 2)
        client.publish("t", "secret", 2)
        self.assertEqual(client.text(), ("t", "secret"))


def tool(program, port, *arguments, **options):
    command = [program, "-h", "127.0.0.1", "-p", str(port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **options)


@unittest.skipUnless(shutil.which("mosquitto_sub"), "mosquitto-clients is not installed")
class Mosquitto(Case):
    def test_publish_and_subscribe(self):
        for version in ("31", "311", "5"):
            for qos in ("0", "1", "2"):
                retained = tool("mosquitto_pub", self.server.port, "-V", version, "-t", "m/r", "-m", qos, "-q", qos, "-r")
                self.assertEqual((retained.returncode, retained.stderr), (0, ""))
                received = tool("mosquitto_sub", self.server.port, "-V", version, "-t", "m/#", "-q", qos, "-C", "1", "-v")
                self.assertEqual((received.returncode, received.stdout), (0, f"m/r {qos}\n"))

    def test_a_session_of_mosquitto_sub(self):
        session = ["-i", "sub", "-c", "-q", "1", "-t", "s", "-V", "311"]
        first = tool("mosquitto_sub", self.server.port, *session, "-E")
        self.assertEqual(first.returncode, 0, first.stderr)
        lines = "".join(f"{number}\n" for number in range(50))
        sent = tool("mosquitto_pub", self.server.port, "-t", "s", "-q", "1", "-l", input=lines)
        self.assertEqual(sent.returncode, 0, sent.stderr)
        received = tool("mosquitto_sub", self.server.port, *session, "-C", "50")
        self.assertEqual(received.stdout, lines)

    def test_refused(self):
        server = self.start("auth")
        refused = tool("mosquitto_pub", server.port, "-t", "x", "-m", "x", "-V", "5", "-q", "1")
        self.assertNotEqual(refused.returncode, 0)
        accepted = tool("mosquitto_pub", server.port, "-t", "x", "-m", "x", "-u", "carol", "-P", "p4ss", "-q", "1")
        self.assertEqual(accepted.returncode, 0, accepted.stderr)


class Broker:
    """The broker mosquitto, which says nothing of the port that it binds: the test asks for a free one before."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        settings = pathlib.Path(folder) / "mosquitto.conf"
        settings.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        program = shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin")
        self.process = subprocess.Popen([program, "-c", settings], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "running" in line:
                break

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def exchange(port, packets):
    """Sends packets on one connection, and returns all bytes until the server closes it."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        for packet in packets:
            connection.sendall(bytes.fromhex(packet))
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                received += piece
        return received.hex()


CONNECT = "100d00044d5154540402003c000163"
CONNECT_MQISDP = "100f00064d51497364700302003c000163"
DISCONNECT = "e000"


@unittest.skipUnless(shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin"), "mosquitto is not installed")
class SameAsMosquitto(Case):
    """Scripts in which the standard leaves no choice, compared byte by byte with the broker mosquitto."""

    def setUp(self):
        super().setUp()
        self.broker = Broker(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(self.broker.end)

    def test_version_3(self):
        scripts = [
            [CONNECT, DISCONNECT],
            [CONNECT_MQISDP, DISCONNECT],
            # Ping, subscribe with each QoS, unsubscribe twice.
            [CONNECT, "c000", "8206000100016100", "8206000200016101", "8206000300016102", DISCONNECT],
            [CONNECT, "8206000100016102", "a2050002000161", "a2050003000161", DISCONNECT],
            # QoS 1 and 2 without a subscription.
            [CONNECT, "3206000161000978", DISCONNECT],
            [CONNECT, "3406000161000978", "3c06000161000978", "62020009", "62020009", DISCONNECT],
            # Malformed: a second CONNECT, QoS 3, SUBSCRIBE without a filter, identifier 0, a wildcard, wrong flags.
            [CONNECT, CONNECT],
            [CONNECT, "3606000161000978"],
            [CONNECT, "82020001"],
            [CONNECT, "3206000161000078"],
            [CONNECT, "300400012378"],
            [CONNECT, "60020009"],
            # No identifier without a clean session, a reserved flag.
            ["100c00044d5154540400003c0000"],
            ["100d00044d5154540403003c000163"],
        ]
        for script in scripts:
            ours, theirs = (exchange(port, script) for port in (self.server.port, self.broker.port))
            self.assertEqual(ours, theirs, script)


if __name__ == "__main__":
    unittest.main()
