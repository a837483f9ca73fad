"""nats-py on a server with the plugin for NATS."""

import asyncio
import contextlib
import json
import logging
import os
import pathlib
import ssl
import subprocess
import tempfile
import unittest
import urllib.request

import nats
import nats.errors
from server import LIMIT, Server

# The loop of a test is watched, and a busy machine makes its steps long.
logging.getLogger("asyncio").setLevel(logging.ERROR)


class Case(unittest.IsolatedAsyncioTestCase):
    arguments = ()

    async def asyncSetUp(self):
        self.exit = contextlib.AsyncExitStack()
        self.server = self.start(*self.arguments)

    async def asyncTearDown(self):
        await self.exit.aclose()

    def start(self, *arguments):
        server = Server(*arguments)
        self.exit.callback(server.end)
        return server

    async def client(self, url=None, **options):
        async def close():
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(), LIMIT)

        options = {"allow_reconnect": False, "connect_timeout": LIMIT, **options}
        client = await nats.connect(url or "nats://" + self.server.address, **options)
        self.exit.push_async_callback(close)
        return client

    async def settle(self, client):
        """Waits until the server has the subscriptions of a client, whose flush sends PING before them."""
        await client.flush()
        await client.flush()

    async def next(self, subscription):
        return await subscription.next_msg(timeout=LIMIT)


class Messages(Case):
    async def test_wildcards(self):
        client = await self.client()
        one, rest = await client.subscribe("quotes.*"), await client.subscribe("quotes.>")
        await self.settle(client)
        self.server.ask("publish quotes/acme 12.5")
        self.server.ask("publish quotes/acme/eu 11.5")
        message = await self.next(one)
        self.assertEqual((message.subject, message.data), ("quotes.acme", b"12.5"))
        subjects = [(await self.next(rest)).subject for _ in range(2)]
        self.assertEqual(sorted(subjects), ["quotes.acme", "quotes.acme.eu"])
        self.assertEqual(one.pending_msgs, 0)

    async def test_clients_publish_to_each_other_and_to_native_callers(self):
        self.assertEqual(self.server.ask("watch orders/>"), "watching")
        one, other = await self.client(), await self.client()
        subscription = await other.subscribe("orders.*")
        await self.settle(other)
        for number in range(100):
            await one.publish("orders.eu", str(number).encode())
        await one.flush()
        for number in range(100):
            self.assertEqual((await self.next(subscription)).data, str(number).encode())
            self.assertEqual(self.server.ask("next"), f"entry orders/eu {number}")

    async def test_callers_of_the_bus_service_publish_to_clients(self):
        client = await self.client()
        subscription = await client.subscribe("news.eu")
        await self.settle(client)
        body = {"topic": "news/eu", "entry": {"payload": "aGk="}}
        request = urllib.request.Request(
            f"http://{self.server.others}/switchboard.bus.v1.Bus/Publish",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=LIMIT).read())
        self.assertEqual((await self.next(subscription)).data, b"hi")

    async def test_queue_groups(self):
        members = []
        for _ in range(3):
            client = await self.client()
            members.append(await client.subscribe("jobs", queue="workers"))
            await self.settle(client)
        publisher = await self.client()
        for number in range(60):
            await publisher.publish("jobs", str(number).encode())
        received = []
        for member in members:
            received.append([])
            while True:
                try:
                    received[-1].append(int((await member.next_msg(timeout=0.5)).data))
                except nats.errors.TimeoutError:
                    break
        self.assertEqual(sorted(sum(received, [])), list(range(60)))

    async def test_unsubscribe_after_a_number(self):
        client = await self.client()
        subscription = await client.subscribe("a")
        await subscription.unsubscribe(limit=2)
        for _ in range(4):
            await client.publish("a", b"x")
        await self.settle(client)
        received = [message async for message in subscription.messages]
        self.assertEqual(len(received), 2)

    async def test_headers(self):
        client = await self.client()
        subscription = await client.subscribe("a")
        await client.publish("a", b"x", headers={"Trace-Id": "7", "plain": "y"})
        message = await self.next(subscription)
        self.assertEqual(message.headers, {"Trace-Id": "7", "plain": "y"})

    async def test_requests(self):
        responder, requester = await self.client(), await self.client()

        async def square(message):
            await message.respond(str(int(message.data) ** 2).encode())

        await responder.subscribe("square", cb=square)
        await self.settle(responder)
        for number in range(200):
            response = await requester.request("square", str(number).encode(), timeout=LIMIT)
            self.assertEqual(int(response.data), number**2)
        old = await requester.request("square", b"3", timeout=LIMIT, old_style=True)
        self.assertEqual(old.data, b"9")

    async def test_a_request_without_responders(self):
        client = await self.client()
        with self.assertRaises(nats.errors.NoRespondersError):
            await client.request("nothing.here", b"x", timeout=LIMIT)

    async def test_payloads_up_to_the_limit(self):
        client = await self.client()
        self.assertEqual(client.max_payload, 1 << 20)
        subscription = await client.subscribe("a")
        await client.publish("a", b"x" * (1 << 20))
        self.assertEqual(len((await self.next(subscription)).data), 1 << 20)
        with self.assertRaises(nats.errors.MaxPayloadError):
            await client.publish("a", b"x" * ((1 << 20) + 1))

    async def test_a_client_drains(self):
        client, publisher = await self.client(), await self.client()
        received = []

        async def slowly(message):
            await asyncio.sleep(0.01)
            received.append(message)

        await client.subscribe("a", cb=slowly)
        await self.settle(client)
        for _ in range(20):
            await publisher.publish("a", b"x")
        await publisher.flush()
        await client.drain()
        self.assertEqual(len(received), 20)

    async def test_many_messages_arrive_in_order(self):
        publisher, subscriber = await self.client(), await self.client()
        subscription = await subscriber.subscribe("a", pending_msgs_limit=-1, pending_bytes_limit=-1)
        await self.settle(subscriber)
        for number in range(20_000):
            await publisher.publish("a", str(number).encode())
        for number in range(20_000):
            self.assertEqual(int((await self.next(subscription)).data), number)
        self.assertEqual(self.server.stats()["missed"], 0)


class Services(Case):
    async def test_a_request_is_a_call(self):
        client = await self.client()
        response = await client.request("interop.v1.Greeter.Greet", b'{"name":"Ali"}', timeout=LIMIT)
        self.assertEqual((json.loads(response.data), response.headers), ("hello Ali from unknown", None))

    async def test_a_call_that_fails(self):
        client = await self.client()
        response = await client.request("interop.v1.Greeter.Greet", b'{"name":""}', timeout=LIMIT)
        self.assertEqual(response.headers["Nats-Service-Error"], "the name is empty")
        self.assertEqual(response.headers["Nats-Service-Error-Code"], "400")

    async def test_services_describe_themselves(self):
        client = await self.client()
        response = await client.request("$SRV.INFO.interop-v1-Greeter", b"", timeout=LIMIT)
        information = json.loads(response.data)
        self.assertEqual(information["type"], "io.nats.micro.v1.info_response")
        self.assertEqual(information["endpoints"][0]["subject"], "interop.v1.Greeter.Greet")


class Websockets(Case):
    async def test_a_client_in_a_websocket(self):
        plain = await self.client()
        inside = await self.client(f"ws://{self.server.others}/nats")
        subscription = await inside.subscribe("a.*")
        await self.settle(inside)
        await plain.publish("a.b", b"x" * 100_000)
        self.assertEqual(len((await self.next(subscription)).data), 100_000)
        response = await inside.request("interop.v1.Greeter.Greet", b'{"name":"Ali"}', timeout=LIMIT)
        self.assertEqual(json.loads(response.data), "hello Ali from unknown")

    async def test_a_client_that_can_name_no_path(self):
        client = await self.client(f"ws://{self.server.websockets}")
        subscription = await client.subscribe("a")
        await client.publish("a", b"x")
        self.assertEqual((await self.next(subscription)).data, b"x")


class Credentials(Case):
    arguments = ("auth",)

    async def test_accepted(self):
        for options, caller in (({"token": "t0ken"}, "alice"), ({"user": "carol", "password": "p4ss"}, "carol")):
            with self.subTest(caller):
                client = await self.client(**options)
                response = await client.request("interop.v1.Greeter.Greet", b'["x"]', timeout=LIMIT)
                self.assertEqual(json.loads(response.data), f"hello x from {caller}")

    async def test_refused(self):
        for options in ({"token": "wrong"}, {"user": "carol", "password": "wrong"}, {}):
            with self.subTest(options), self.assertRaises(Exception) as refused:
                await self.client(**options)
            self.assertIn("Authorization Violation", str(refused.exception))


class SlowConsumers(Case):
    arguments = ("pending=1000000",)

    async def test_a_client_that_does_not_read_is_closed(self):
        errors, closed = [], asyncio.Event()

        async def failed(error):
            errors.append(str(error))

        async def ended():
            closed.set()

        slow = await self.client(error_cb=failed, closed_cb=ended)
        await slow.subscribe("a")
        await self.settle(slow)
        # The loop of this client does not run meanwhile.
        for _ in range(100):
            self.server.ask("flood a 100 10000")
            if self.server.stats()["slow_consumers"]:
                break
        await asyncio.wait_for(closed.wait(), LIMIT)
        self.assertEqual(self.server.stats()["slow_consumers"], 1)
        # Another one is served.
        other = await self.client()
        subscription = await other.subscribe("b")
        await other.publish("b", b"x")
        self.assertEqual((await self.next(subscription)).data, b"x")


class Stops(Case):
    async def test_a_server_that_stops(self):
        closed = asyncio.Event()

        async def ended():
            closed.set()

        client = await self.client(closed_cb=ended, disconnected_cb=ended)
        subscription = await client.subscribe("a")
        await self.settle(client)
        self.server.ask("publish a last")
        self.server.say("stop")
        self.assertEqual((await self.next(subscription)).data, b"last")
        await asyncio.wait_for(closed.wait(), LIMIT)
        self.assertEqual(self.server.line(), "stopped")

    async def test_a_client_moves_to_another_server(self):
        second = self.start()
        moved = asyncio.Event()

        async def reconnected():
            moved.set()

        servers = ["nats://" + self.server.address, "nats://" + second.address]
        client = await self.client(
            servers, allow_reconnect=True, dont_randomize=True, reconnect_time_wait=0.1, reconnected_cb=reconnected
        )
        subscription = await client.subscribe("a")
        await self.settle(client)
        self.server.say("stop")
        await asyncio.wait_for(moved.wait(), LIMIT)
        await self.settle(client)
        second.ask("publish a again")
        self.assertEqual((await self.next(subscription)).data, b"again")


class Tls(Case):
    async def asyncSetUp(self):
        self.exit = contextlib.AsyncExitStack()
        folder = pathlib.Path(self.exit.enter_context(tempfile.TemporaryDirectory()))
        self.certificate, key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            + ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            + ["-keyout", str(key), "-out", str(self.certificate)],
            check=True,
            capture_output=True,
        )
        self.server = self.start(f"tls={self.certificate},{key}")

    async def test_the_handshake_follows_info(self):
        context = ssl.create_default_context(cafile=self.certificate)
        client = await self.client("tls://" + self.server.address, tls=context)
        subscription = await client.subscribe("a")
        await client.publish("a", b"x")
        self.assertEqual((await self.next(subscription)).data, b"x")

    async def test_a_client_without_tls_is_closed(self):
        reader, writer = await asyncio.open_connection(*self.server.address.split(":"))
        info = await asyncio.wait_for(reader.readline(), LIMIT)
        self.assertTrue(json.loads(info.removeprefix(b"INFO "))["tls_required"])
        writer.write(b"CONNECT {}\r\nPING\r\n")
        rest = await asyncio.wait_for(reader.read(), LIMIT)
        self.assertEqual(rest, b"-ERR 'Secure Connection - TLS Required'\r\n")
        writer.close()


@unittest.skipUnless("NATS_TOOL" in os.environ, "the tool `nats` is not installed")
class Tool(Case):
    """The tool `nats`, which is made of nats.go."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.home = self.exit.enter_context(tempfile.TemporaryDirectory())

    async def begin(self, *arguments):
        return await asyncio.create_subprocess_exec(
            os.environ["NATS_TOOL"],
            "--server",
            "nats://" + self.server.address,
            *arguments,
            env={**os.environ, "HOME": self.home, "XDG_CONFIG_HOME": self.home},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    async def output(self, process):
        output, _ = await asyncio.wait_for(process.communicate(), 3 * LIMIT)
        self.assertEqual(process.returncode, 0, output.decode())
        return output.decode()

    async def run_tool(self, *arguments):
        return await self.output(await self.begin(*arguments))

    async def test_requests(self):
        greet = "interop.v1.Greeter.Greet"
        self.assertIn('"hello Ali from unknown"', await self.run_tool("req", greet, '{"name":"Ali"}', "--raw"))
        self.assertIn("Nats-Service-Error-Code: 400", await self.run_tool("req", greet, '{"name":""}'))
        self.assertIn("No responders", await self.run_tool("req", "nothing.here", "x"))

    async def test_a_tool_replies(self):
        replies = await self.begin("reply", "square", "49", "--queue", "q")
        client = await self.client()
        while True:
            try:
                response = await client.request("square", b"7", timeout=LIMIT)
                break
            except nats.errors.NoRespondersError:
                self.assertIsNone(replies.returncode)
        self.assertEqual(response.data, b"49")
        replies.kill()
        await replies.wait()

    async def test_publications_and_subscriptions(self):
        subscriber = await self.begin("sub", "a.*", "--count", "3", "--raw")
        publisher = await self.client()
        while subscriber.returncode is None and self.server.stats()["delivered"] < 3:
            await publisher.publish("a.b", b"hi")
            await publisher.flush()
        self.assertEqual((await self.output(subscriber)).split(), ["hi"] * 3)
        subscription = await publisher.subscribe("b")
        await self.settle(publisher)
        await self.run_tool("pub", "b", "text", "--header", "Trace-Id:7")
        message = await self.next(subscription)
        self.assertEqual((message.data, message.headers), (b"text", {"Trace-Id": "7"}))

    async def test_the_services_are_listed(self):
        self.assertIn("interop-v1-Greeter", await self.run_tool("micro", "ls"))
        self.assertIn("interop.v1.Greeter.Greet", await self.run_tool("micro", "info", "interop-v1-Greeter"))

    async def test_all_messages_of_a_bench_arrive(self):
        count = 50_000
        subscriber = await self.begin("bench", "sub", "load", "--msgs", str(count), "--clients", "2", "--no-progress")
        probe = await self.client()
        # Until both subscribe: the probes count as messages.
        while subscriber.returncode is None and self.server.stats()["delivered"] < 2:
            await probe.publish("load", b"x")
            await probe.flush()
        await self.run_tool("bench", "pub", "load", "--msgs", str(count), "--size", "128", "--no-progress")
        self.assertIn("msgs/sec", await self.output(subscriber))
        self.assertEqual(self.server.stats()["missed"], 0)


@unittest.skipUnless("NATS_NODE_MODULES" in os.environ, "the packages of Node are not installed")
class Node(Case):
    async def test_transport_node(self):
        folder = pathlib.Path(__file__).parent.parent / "js"
        process = await asyncio.create_subprocess_exec(
            "node",
            str(folder / "peer.cjs"),
            self.server.address,
            env={**os.environ, "NODE_PATH": os.environ["NATS_NODE_MODULES"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 3 * LIMIT)
        self.assertEqual(process.returncode, 0, output.decode())
        self.assertIn(b"done", output)


if __name__ == "__main__":
    unittest.main()
