"""Devices of goim, in Python, on a server with the adapter, and programs that push through its HTTP interface."""

import contextlib
import json
import struct
import unittest

from goim import (
    AUTH,
    AUTH_REPLY,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    MESSAGE,
    RAW,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Client,
    Tcp,
    WebSocket,
    packet,
)
from server import Server


class Case(unittest.TestCase):
    options = ()

    def setUp(self):
        self.exit = contextlib.ExitStack()
        self.server = Server(*self.options)
        self.exit.callback(self.server.end)

    def tearDown(self):
        self.exit.close()

    def link(self, kind, *arguments, port=None, **options):
        link = kind(port or self.server.devices, *arguments, **options)
        self.exit.callback(link.close)
        return link

    def device(self, kind=Tcp, **members):
        device = Client(self.link(kind))
        self.assertEqual(device.auth(**members), b"")
        return device

    def each(self):
        """Both transports."""
        for kind in (Tcp, WebSocket):
            with self.subTest(kind.__name__):
                yield kind


class Protocol(Case):
    def test_every_operation_has_its_reply(self):
        for kind in self.each():
            device = self.device(kind)
            self.assertEqual(device.heartbeat(), 1)
            self.assertEqual(device.ask(SUBSCRIBE, 15, b"1003,1004"), b"1003,1004")
            self.assertEqual(device.ask(UNSUBSCRIBE, 17, b"1003"), b"1003")
            self.assertEqual(device.ask(SUBSCRIBE, 15, b"no number"), b"no number")
            self.assertEqual(device.ask(MESSAGE, MESSAGE, b"hello"), b"")
            self.assertEqual(device.ask(1000, 1000, b"hello"), b"")
            self.assertEqual(device.change_room("live://2"), b"live://2")
            self.assertEqual(device.heartbeat(), 1)
            self.assertEqual(device.change_room(""), b"")
            self.assertEqual(device.heartbeat(), 0)
            device.close()

    def test_heartbeats_count_the_members_of_the_room(self):
        first, second = self.device(Tcp, mid=1), self.device(WebSocket, mid=2)
        self.assertEqual((first.heartbeat(), second.heartbeat()), (2, 2))
        second.change_room("live://2")
        self.assertEqual((first.heartbeat(), second.heartbeat()), (1, 1))
        second.change_room("live://1")
        self.assertEqual((first.heartbeat(), second.heartbeat()), (2, 2))
        second.close()
        self.server.until(lambda stats: stats["devices"] == 1)
        self.assertEqual(first.heartbeat(), 1)

    def test_packets_before_the_authentication_are_ignored(self):
        for kind in self.each():
            device = Client(self.link(kind))
            device.request(HEARTBEAT)
            device.request(1000, b"early")
            self.assertEqual(device.auth(), b"")
            self.assertEqual(device.heartbeat(), 1)
            device.close()

    def test_bad_lengths_close_the_connection_with_a_counted_reason(self):
        for length, header, reason in (
            (15, 16, "package_length"),
            (0, 16, "package_length"),
            (-1, 16, "package_length"),
            (4113, 16, "limit"),
            (20, 17, "header_length"),
        ):
            for kind in self.each():
                before = self.server.stats().get(reason, 0)
                device = self.device(kind)
                device.link.send(HEADER.pack(length, header, 1, HEARTBEAT, 9) + b"\0" * 16)
                self.assertTrue(device.link.is_closed())
                self.server.until(lambda stats: stats.get(reason, 0) == before + 1)

    def test_an_authentication_that_is_not_json_closes_the_connection(self):
        for kind in self.each():
            link = self.link(kind)
            link.send(packet(AUTH, b"token"))
            self.assertTrue(link.is_closed())
        self.server.until(lambda stats: stats["auth"] == 2)

    def test_the_newer_connection_with_a_key_closes_the_older(self):
        for older, newer in ((Tcp, Tcp), (Tcp, WebSocket), (WebSocket, Tcp)):
            with self.subTest(older=older.__name__, newer=newer.__name__):
                old = self.device(older, key="phone")
                new = self.device(newer, key="phone")
                self.assertTrue(old.link.is_closed())
                # The late end of the older one does not take the key away (D4).
                self.server.until(lambda stats: stats["devices"] == 1)
                self.server.push("keys?operation=1000&keys=phone", b"to the newer")
                self.assertEqual(new.pushes(1), [(1000, b"to the newer")])
                new.close()
                self.server.until(lambda stats: stats["devices"] == 0)


class Handshake(Case):
    def test_websockets_are_refused_as_the_protocol_says(self):
        for path, options, status in (
            ("/sub", {}, 101),
            ("/sub?token=1", {}, 404),
            ("/sub", {"version": 8}, 426),
            ("/sub", {"origin": "http://evil.example"}, 403),
        ):
            with self.subTest(path=path, **options):
                self.assertEqual(self.link(WebSocket, path, **options).status, status)

    def test_messages_that_are_not_packets_close_the_websocket(self):
        for kind, data, bits, code in (
            (1, b"hello", 0x80, 1003),
            (2, b"short", 0x80, 1002),
            (2, packet(AUTH, b"{}"), 0xC0, 1002),
            (2, b"\0" * 70_000, 0x80, 1009),
        ):
            link = self.link(WebSocket)
            link.frame(kind, data, bits)
            self.assertEqual(link.close_code(), code)


class Pushes(Case):
    def test_pushes_reach_keys_users_rooms_and_all_in_order(self):
        tcp = self.device(Tcp, mid=1, key="a")
        websocket = self.device(WebSocket, mid=2, key="b")
        for index in range(100):
            self.server.push("keys?operation=1000&keys=a&keys=b&keys=nobody", f"keys {index}")
            self.server.push("mids?operation=1000&mids=1&mids=2&mids=9", f"mids {index}")
            self.server.push("room?operation=1001&type=live&room=1", f"room {index}")
        texts = {"keys": 1000, "mids": 1000, "room": 1001}
        for device in (tcp, websocket):
            pushes = device.pushes(300)
            for text, operation in texts.items():
                own = [push for push in pushes if push[1].startswith(text.encode())]
                self.assertEqual(own, [(operation, f"{text} {index}".encode()) for index in range(100)])
        self.server.push("all?operation=1000&speed=1", b"all")
        self.assertEqual((tcp.pushes(1), websocket.pushes(1)), ([(1000, b"all")],) * 2)

    def test_operations_filter_rooms_too(self):
        # D9.
        device = self.device(accepts=(1000,))
        other = self.device(WebSocket, mid=2, accepts=())
        for operation in (1001, 1000):
            self.server.push(f"room?operation={operation}&type=live&room=1", str(operation))
            self.server.push(f"mids?operation={operation}&mids=1&mids=2", str(operation))
            self.server.push(f"all?operation={operation}", str(operation))
        self.assertEqual(device.pushes(3), [(1000, b"1000")] * 3)
        device.ask(SUBSCRIBE, 15, b"1001")
        other.ask(SUBSCRIBE, 15, b"1001")
        device.ask(UNSUBSCRIBE, 17, b"1000")
        for operation in (1000, 1001):
            self.server.push(f"room?operation={operation}&type=live&room=1", str(operation))
        self.assertEqual((device.pushes(1), other.pushes(1)), ([(1001, b"1001")],) * 2)

    def test_a_burst_in_a_room_reaches_every_member(self):
        # D8: goim drops entries above 40.
        members = [self.device(kind, mid=index + 1) for index, kind in enumerate((Tcp, WebSocket, Tcp))]
        for index in range(500):
            self.server.push("room?operation=1000&type=live&room=1", str(index))
        for member in members:
            self.assertEqual(member.pushes(500), [(1000, str(index).encode()) for index in range(500)])

    def test_a_device_that_does_not_read_delays_no_other(self):
        # D2, D7.
        stalled = self.device(mid=1, key="stalled")
        body = b"x" * 60_000
        reader = self.device(mid=2, key="reader")
        for _ in range(300):
            self.server.push("keys?operation=1000&keys=stalled&keys=reader", body)
            self.assertEqual(reader.pushes(1), [(1000, body)])
        # D3: what the stalled device did not get is counted, and it stays connected, as in goim.
        self.server.until(lambda stats: stats["lagged"] > 0)
        for _ in range(300):
            # Until it has caught up, it misses further ones.
            self.server.push("keys?operation=1000&keys=stalled", b"after")
            self.assertEqual(stalled.heartbeat(), 2)
            if (1000, b"after") in stalled.pending:
                break
        self.assertIn((1000, b"after"), stalled.pending)
        self.assertLess(0, stalled.pending.count((1000, body)))
        self.assertLess(stalled.pending.count((1000, body)), 300)

    def test_a_push_larger_than_a_packet_of_a_device_is_delivered(self):
        for kind in self.each():
            device = self.device(kind, key="k")
            body = bytes(range(256)) * 400
            self.server.push("keys?operation=1000&keys=k", body)
            self.assertEqual(device.pushes(1), [(1000, body)])
            device.close()


class Interface(Case):
    def test_bad_requests_have_the_responses_of_goim(self):
        text = "text/plain; charset=utf-8"
        required = "Key: '{0}' Error:Field validation for '{0}' failed on the 'required' tag".format
        for path, message in (
            ("mids?operation=1000&mids=1,2", 'strconv.ParseInt: parsing \\"1,2\\": invalid syntax'),
            ("room?type=live&room=1", required("Op")),
            ("room?operation=1000&room=1", required("Type")),
            ("room?operation=1000&type=live", required("Room")),
            ("room?operation=0&type=live&room=1", required("Op")),
            ("all", required("Op")),
            ("all?operation=x", 'strconv.ParseInt: parsing \\"x\\": invalid syntax'),
            ("all?operation=2147483648", 'strconv.ParseInt: parsing \\"2147483648\\": value out of range'),
            ("all?operation=1&speed=x", 'strconv.ParseInt: parsing \\"x\\": invalid syntax'),
        ):
            with self.subTest(path):
                expected = (400, text, f'{{"code":-400,"message":"{message}"}}')
                self.assertEqual(self.server.http("POST", f"/goim/push/{path}", b"x"), expected)
        self.assertEqual(self.server.http("POST", "/goim/push/keys", b"x")[2], '{"code":-400,"message":""}')
        self.assertEqual(self.server.http("POST", "/goim/push/mids", b"x")[2], '{"code":0,"message":""}')
        json_type = {"content-type": "application/json"}
        self.assertEqual(self.server.http("POST", "/goim/push/nothing", b"x", **json_type)[0], 404)

    def test_a_body_over_the_limit_is_refused(self):
        # D12.
        status, _, body = self.server.http("POST", "/goim/push/all?operation=1000", b"x" * (1 << 20) + b"x")
        self.assertEqual((status, json.loads(body)["code"]), (413, -400))

    def test_lists_of_rooms_and_nodes(self):
        empty = '{"code":0,"message":"","data":[]}'
        self.assertEqual(self.server.http("GET", "/goim/online/top?type=live&limit=5")[2], empty)
        for index in range(3):
            self.device(mid=index + 1, room="live://big")
        self.device(WebSocket, mid=4, room="live://small")
        self.device(mid=5, room="chat://big")
        self.assertEqual(
            self.server.http("GET", "/goim/online/top?type=live&limit=5")[2],
            '{"code":0,"message":"","data":[{"room_id":"big","count":3},{"room_id":"small","count":1}]}',
        )
        self.assertEqual(
            self.server.http("GET", "/goim/online/room?type=live&rooms=small&rooms=big&rooms=none")[2],
            '{"code":0,"message":"","data":{"big":3,"none":0,"small":1}}',
        )
        self.assertEqual(
            self.server.http("GET", "/goim/online/total")[2],
            '{"code":0,"message":"","data":{"conn_count":5,"ip_count":1}}',
        )
        self.assertEqual(self.server.http("GET", "/goim/online/top?type=live")[0], 400)
        # D10: no node is no division by zero.
        nodes = self.server.data("/goim/nodes/weighted?platform=web")
        self.assertEqual((nodes["domain"], nodes["nodes"]), ("conn.example.org", ["conn.example.org"]))
        self.assertEqual(self.server.data("/goim/nodes/instances"), [])


class Merged(Case):
    options = ("merge",)

    def test_messages_of_a_window_are_one_container_of_at_most_twenty(self):
        tcp, websocket = self.device(), self.device(WebSocket, mid=2)
        for index in range(60):
            self.server.push("room?operation=1000&type=live&room=1", str(index))
        expected = [(1000, str(index).encode()) for index in range(60)]
        self.assertEqual(tcp.pushes(60), expected)
        found, sizes = [], []
        while len(found) < 60:
            pushes = websocket.unpack(websocket.link.receive())
            sizes.append(len(pushes))
            found += pushes
        self.assertEqual(found, expected)
        self.assertLessEqual(max(sizes), 20)
        self.assertLess(len(sizes), 60)


class Legacy(Case):
    options = ("legacy",)

    def test_rooms_are_not_filtered_as_in_goim(self):
        device = self.device(accepts=())
        self.server.push("mids?operation=1001&mids=1", b"filtered")
        self.server.push("room?operation=1001&type=live&room=1", b"room")
        self.assertEqual(device.pushes(1), [(1001, b"room")])


class ImCloud(Case):
    def device(self, kind=Tcp, **members):
        device = Client(self.link(kind, port=self.server.im_cloud), "im-cloud")
        self.assertEqual(device.auth(**members), b'{"ok":"yes"}')
        return device

    def push(self, path, **parameters):
        response = self.server.http("POST", f"/im/push/{path}", json.dumps(parameters))
        self.assertEqual(response, (200, "application/json", '{"msg":"","data":["ok"],"code":0}'))

    def test_devices_have_the_bodies_of_im_cloud(self):
        for kind in self.each():
            device = self.device(kind, mid=7, key="k")
            self.assertEqual(device.heartbeat(), b'{"hreart":"ok"}')
            self.push("mids", mids=7, msg="mids", operation=9)
            self.push("keys", keys=["k"], msg={"a": 1})
            self.push("room", type="live://", room="1", msg="room")
            self.push("all", msg="all")
            bodies = [b"mids", b'{"a":1}', b"room", b"all"]
            self.assertEqual(sorted(device.pushes(4)), sorted((RAW, body) for body in bodies))
            device.close()

    def test_a_member_that_is_missing_closes_the_connection(self):
        link = self.link(Tcp, port=self.server.im_cloud)
        link.send(packet(AUTH, json.dumps({"mid": 1, "platform": "web", "accepts": []}).encode()))
        self.assertTrue(link.is_closed())

    def test_devices_push_to_devices(self):
        for kind in self.each():
            sender, receiver = self.device(kind, mid=1), self.device(kind, mid=2)
            push = {"cmd": "pushMids", "data": {"msg": "hi", "mids": [2]}}
            sender.request(RAW, json.dumps(push).encode())
            self.assertEqual(receiver.pushes(1), [(RAW, b"hi")])
            sender.request(RAW, b'{"cmd":"fly","data":{}}')
            self.assertEqual(sender.pushes(1), [(RAW, b'{"msg":"unknown cmd","data":[],"code":1}')])
            sender.close()
            receiver.close()
            self.server.until(lambda stats: stats["devices"] == 0)

    def test_a_room_has_members_of_both_products(self):
        im_cloud = self.device(WebSocket, mid=1)
        goim = Client(self.link(Tcp))
        goim.auth(mid=2)
        self.assertEqual(goim.heartbeat(), 2)
        self.server.push("room?operation=1000&type=live&room=1", b"one")
        self.push("room", type="live", room="1", msg="two")
        self.assertEqual(im_cloud.pushes(2), [(RAW, b"one"), (RAW, b"two")])
        self.assertEqual(goim.pushes(2), [(1000, b"one"), (1000, b"two")])

    def test_the_interface_of_im_cloud(self):
        missing = '{"msg":"缺少参数","data":[],"code":1}'
        for path in ("push/keys", "push/mids", "push/room", "push/all"):
            self.assertEqual(self.server.http("POST", f"/im/{path}", b"operation=9")[2], missing)
        form = {"content-type": "application/x-www-form-urlencoded"}
        accepted = '{"msg":"","data":["ok"],"code":0}'
        self.assertEqual(self.server.http("POST", "/im/push/keys", b"keys[]=a&msg=x", **form)[2], accepted)
        self.device(mid=1, room="live://1")
        self.assertEqual(
            self.server.http("GET", "/im/online/top?type=live&limit=1")[2],
            '{"msg":"","data":[{"roomId":"1","count":1}],"code":0}',
        )
        self.assertEqual(
            self.server.http("GET", "/im/online/room?type=live&rooms[]=1&rooms[]=2")[2],
            '{"msg":"","data":{"1":1,"2":0},"code":0}',
        )
        self.assertEqual(
            self.server.http("GET", "/im/online/total")[2],
            '{"msg":"","data":{"ip_count":1,"conn_count":1},"code":0}',
        )
        self.assertEqual(self.server.http("GET", "/im/online/top?type=live")[2], missing)
        self.assertEqual(self.server.http("GET", "/im/nodes/instances")[2], '{"msg":"","data":[],"code":0}')
        self.assertEqual(self.server.http("GET", "/health")[2], "ok")


class Cookie(Case):
    options = ("cookie",)

    def test_the_cookie_of_a_websocket_may_say_who_a_device_is(self):
        device = Client(self.link(WebSocket, cookie="session=good"))
        self.assertEqual(device.auth(mid=7), b"")
        self.assertEqual(device.heartbeat(), 1)
        for link in (self.link(WebSocket, cookie="session=bad"), self.link(WebSocket), self.link(Tcp)):
            link.send(packet(AUTH, b"{}"))
            self.assertTrue(link.is_closed())
        self.server.until(lambda stats: (stats["unauthenticated"], stats["devices"]) == (3, 1))


class Token(Case):
    options = ("token",)

    def test_the_interface_needs_its_token(self):
        path = "/goim/push/all?operation=1000"
        self.assertEqual(self.server.http("POST", path, b"x")[0], 401)
        self.assertEqual(self.server.http("POST", path, b"x", authorization="Bearer wrong")[0], 401)
        self.assertEqual(self.server.http("POST", path, b"x", authorization="Bearer secret")[0], 200)
        self.assertEqual(self.server.http("POST", path + "&token=secret", b"x")[0], 200)
        self.assertEqual(self.server.http("GET", "/im/online/total")[0], 401)
        self.assertEqual(self.server.http("GET", "/health")[0], 200)


if __name__ == "__main__":
    unittest.main()
