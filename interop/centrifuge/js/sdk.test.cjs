// The library `centrifuge` in Node, with JSON and with Protobuf, against `centrifuge-server`.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { createHmac } = require("node:crypto");
const { once } = require("node:events");
const path = require("node:path");
const readline = require("node:readline");
const { after, before, test } = require("node:test");

const modules = process.env.CENTRIFUGE_NODE_MODULES;
const WebSocket = require(path.join(modules, "ws"));
const { Centrifuge } = require(path.join(modules, "centrifuge"));
const { Centrifuge: Protobuf } = require(path.join(modules, "centrifuge/build/protobuf"));

let server, lines, port;

before(async () => {
  server = spawn(process.env.CENTRIFUGE_SERVER, { stdio: ["pipe", "pipe", "inherit"] });
  lines = readline.createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  port = Number((await lines.next()).value.split(" ")[1]);
});

after(() => server.kill());

async function order(line) {
  server.stdin.write(line + "\n");
  return (await lines.next()).value;
}

function token(claims) {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${encode({ alg: "HS256" })}.${encode({ exp: 4000000000, ...claims })}`;
  return `${signed}.${createHmac("sha256", Buffer.alloc(32, 7)).update(signed).digest("base64url")}`;
}

async function connect(Library, claims, options = {}) {
  const client = new Library(`ws://127.0.0.1:${port}/connection/websocket`, {
    websocket: WebSocket,
    token: token(claims),
    minReconnectDelay: 20,
    maxReconnectDelay: 100,
    ...options,
  });
  client.connect();
  await client.ready(20000);
  return client;
}

const encoded = (Library, value) =>
  Library === Centrifuge ? value : Buffer.from(JSON.stringify(value));
const decoded = (data) => (data instanceof Uint8Array ? JSON.parse(Buffer.from(data).toString()) : data);

for (const [format, Library] of [["json", Centrifuge], ["protobuf", Protobuf]]) {
  const channel = `live:${format}`;

  test(`${format}: publications, presence, history, calls`, { timeout: 60000 }, async () => {
    const ali = await connect(Library, { sub: "ali", info: { name: "Ali" } });
    const bob = await connect(Library, { sub: "bob" });
    const sub = ali.newSubscription(channel, { joinLeave: true });
    const seen = [];
    sub.on("publication", (ctx) => seen.push(ctx));
    sub.subscribe();
    await sub.ready(20000);
    const joined = new Promise((resolve) =>
      sub.on("join", (ctx) => ctx.info.user === "bob" && resolve(ctx)),
    );
    const other = bob.newSubscription(channel);
    other.subscribe();
    await other.ready(20000);
    await joined;
    await other.publish(encoded(Library, { n: 1 }));
    while (seen.length < 1) await once(sub, "publication");
    assert.deepEqual(decoded(seen[0].data), { n: 1 });
    assert.equal(seen[0].info.user, "bob");
    const { clients } = await sub.presence();
    assert.deepEqual(Object.values(clients).map((info) => info.user).sort(), ["ali", "bob"]);
    assert.deepEqual(await sub.presenceStats(), { numClients: 2, numUsers: 2 });
    const history = await sub.history({ limit: 10 });
    assert.deepEqual(history.publications.map((entry) => decoded(entry.data)), [{ n: 1 }]);
    const called = await ali.rpc("Echo/Say", encoded(Library, { text: "hi" }));
    assert.equal(JSON.stringify(decoded(called.data)).includes("HI"), true);
    await assert.rejects(ali.rpc("Nothing/at_all", encoded(Library, {})), { code: 104 });
    await assert.rejects(ali.publish("live:elsewhere", encoded(Library, 1)), { code: 103 });
    const left = new Promise((resolve) => sub.on("leave", resolve));
    bob.disconnect();
    assert.equal((await left).info.user, "bob");
    ali.disconnect();
  });

  test(`${format}: a subscription recovers over a restart`, { timeout: 60000 }, async () => {
    const client = await connect(Library, { sub: "carl" });
    const sub = client.newSubscription(`${channel}-recovery`);
    const seen = [];
    sub.on("publication", (ctx) => seen.push(decoded(ctx.data)));
    sub.subscribe();
    await sub.ready(20000);
    await order(`publish live/${format}-recovery 0`);
    while (seen.length < 1) await once(sub, "publication");
    const again = new Promise((resolve) => sub.once("subscribed", resolve));
    assert.equal(await order("restart"), "stopped");
    for (let n = 1; n <= 50; n++) server.stdin.write(`publish live/${format}-recovery ${n}\n`);
    assert.equal((await lines.next()).value, "restarted");
    for (let n = 1; n <= 50; n++) assert.match((await lines.next()).value, /^published/);
    const ctx = await again;
    assert.equal(ctx.wasRecovering, true);
    assert.equal(ctx.recovered, true);
    while (seen.length < 51) await once(sub, "publication");
    assert.deepEqual(seen, [...Array(51).keys()]);
    client.disconnect();
  });

  test(`${format}: orders of the server, and tokens of subscriptions`, { timeout: 60000 }, async () => {
    const client = await connect(Library, { sub: "dora" });
    const subscribed = new Promise((resolve) => client.once("subscribed", resolve));
    assert.equal(await order("join dora private/2"), "joined");
    assert.equal((await subscribed).channel, "private:2");
    const sub = client.newSubscription("private:1", { token: token({ sub: "dora", channel: "private:1" }) });
    sub.subscribe();
    await sub.ready(20000);
    const ended = new Promise((resolve) => client.once("disconnected", resolve));
    assert.equal(await order("close dora"), "closed");
    assert.deepEqual((({ code, reason }) => ({ code, reason }))(await ended), {
      code: 3503,
      reason: "closed by a command",
    });
  });
}

test("an expired token is fetched again, a forged one is final", { timeout: 60000 }, async () => {
  let asked = 0;
  const client = await connect(Centrifuge, { sub: "eve", exp: 1000 }, {
    getToken: async () => (asked++, token({ sub: "eve" })),
  });
  assert.equal(asked, 1);
  client.disconnect();
  const forged = new Centrifuge(`ws://127.0.0.1:${port}/connection/websocket`, {
    websocket: WebSocket,
    token: token({ sub: "eve" }).slice(0, -4) + "AAAA",
  });
  const ended = new Promise((resolve) => forged.once("disconnected", resolve));
  forged.connect();
  assert.equal((await ended).code, 3500);
});
