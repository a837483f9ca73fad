"""The admin listener: its pages, and its metrics as the library of Prometheus reads them."""

import http.client
import json
import unittest

import grpc
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from schema import demo_pb2, demo_pb2_grpc
from server import PATIENCE_SECONDS, Server


class Admin(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(Server("--topics", "--admin", "127.0.0.1:0"))
        self.admin = self.server.read_line("admin pages on http://")
        channel = self.enterContext(grpc.insecure_channel(self.server.address))
        self.greeter = demo_pb2_grpc.GreeterStub(channel)
        for _ in range(3):
            self.greeter.Greet(demo_pb2.GreetRequest(name="Ada"), timeout=PATIENCE_SECONDS)

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection(self.admin, timeout=PATIENCE_SECONDS)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response, body

    def families(self, parser, **headers):
        response, text = self.ask("/metrics", **headers)
        self.assertEqual(response.status, 200, text)
        return response.headers["content-type"], {family.name: family for family in parser(text)}

    def check(self, families):
        def samples(family, name):
            return [s for s in families[family].samples if s.name == name and s.labels["method"] == "Greet"]

        [calls] = samples("switchboard_calls", "switchboard_calls_total")
        self.assertEqual(calls.value, 3)
        self.assertEqual(
            calls.labels, {"service": "demo.v1.Greeter", "method": "Greet", "wire": "grpc", "code": "ok"}
        )
        buckets = samples("switchboard_call_seconds", "switchboard_call_seconds_bucket")
        bounds = [float(sample.labels["le"]) for sample in buckets]
        self.assertEqual(bounds, sorted(bounds))
        counts = [sample.value for sample in buckets]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual((bounds[-1], counts[-1]), (float("inf"), 3))
        [total] = samples("switchboard_call_seconds", "switchboard_call_seconds_sum")
        self.assertGreater(total.value, 0)
        [sent] = samples("switchboard_call_sent_bytes", "switchboard_call_sent_bytes_total")
        self.assertGreater(sent.value, 0)

    def test_text_format(self):
        kind, families = self.families(parse)
        self.assertTrue(kind.startswith("text/plain; version=0.0.4"), kind)
        self.check(families)

    def test_open_metrics(self):
        kind, families = self.families(parse_open, Accept="application/openmetrics-text; version=1.0.0")
        self.assertTrue(kind.startswith("application/openmetrics-text; version=1.0.0"), kind)
        self.check(families)

    def test_pages_are_json_on_request(self):
        _, index = self.ask("/", Accept="application/json")
        for page in json.loads(index)["pages"]:
            response, body = self.ask(page["path"], Accept="application/json")
            self.assertEqual(response.status, 200, page)
            if page["path"] != "/metrics":
                self.assertEqual(response.headers["content-type"], "application/json", page)
                json.loads(body)

    def test_a_call_in_flight_is_shown(self):
        watching = self.greeter.Watch(demo_pb2.WatchRequest(count=1000, interval_ms=60_000))
        next(watching)
        _, body = self.ask("/calls?format=json")
        [call] = json.loads(body)["calls"]
        self.assertEqual((call["method"], call["wire"]), ("demo.v1.Greeter/Watch", "grpc"))
        watching.cancel()

    def test_flags_change_for_some_time(self):
        response, _ = self.ask("/flags/slow_call?value=250ms&expires=10min", method="POST")
        self.assertEqual(response.status, 200)
        _, body = self.ask("/flags?format=json")
        [flag] = [flag for flag in json.loads(body)["flags"] if flag["flag"] == "slow_call"]
        self.assertEqual(flag["value"], "250ms")
        self.assertGreater(flag["expires_s"], 500)

    def test_topics_have_a_page_and_sums_in_the_metrics(self):
        publication = json.dumps({"topic": "prices/acme", "entry": {"codec": "json", "payload": "MQ=="}})
        connection = http.client.HTTPConnection(self.server.address, timeout=PATIENCE_SECONDS)
        for _ in range(2):
            headers = {"content-type": "application/json"}
            connection.request("POST", "/switchboard.bus.v1.Bus/Publish", publication, headers)
            response = connection.getresponse()
            self.assertEqual((response.status, "position" in json.loads(response.read())), (200, True))
        connection.close()
        _, body = self.ask("/topics?format=json&period=10ms&filter=prices%2F%3E")
        [topic] = json.loads(body)["topics"]
        self.assertEqual((topic["topic"], topic["published"]), ("prices/acme", 2))
        for parser, accept in [(parse, "text/plain"), (parse_open, "application/openmetrics-text")]:
            _, families = self.families(parser, Accept=accept)
            [published] = families["switchboard_bus_published"].samples
            self.assertEqual((published.labels, published.value), ({"source": "bus"}, 2))
            missed = families["switchboard_bus_missed_entries"].samples
            self.assertEqual(
                {sample.labels["reason"] for sample in missed}, {"epoch", "expired", "lagged", "lost"}
            )
            self.assertNotIn("acme", str(families))

    def test_health_follows_the_server(self):
        self.assertEqual(self.ask("/health/ready")[0].status, 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
