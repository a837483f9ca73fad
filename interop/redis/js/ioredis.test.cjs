// ioredis on the port of a server with the plugin for Redis: `node --test`, with RESP_SERVER and IOREDIS, the folder of the
// package.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const { after, before, test } = require("node:test");
const { createRequire } = require("node:module");

const Redis = createRequire(`${process.env.IOREDIS}/index.js`)("ioredis");

/** Starts resp-server; returns its port, and a function that sends a line and resolves to the response. */
async function start(...options) {
  const child = spawn(process.env.RESP_SERVER, options, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => (await lines.next()).value;
  const port = Number((await line()).split(":")[1]);
  const ask = async (command) => {
    child.stdin.write(`${command}\n`);
    return line();
  };
  return { port, ask, end: () => child.kill() };
}

let server;
let guarded;
const clients = [];

function connect(options = {}) {
  const client = new Redis({ port: server.port, maxRetriesPerRequest: 100, retryStrategy: () => 50, ...options });
  client.on("error", () => {});
  clients.push(client);
  return client;
}

/** Collects the messages of a subscriber. */
function collect(client) {
  const received = [];
  const waiting = [];
  const add = (...message) => {
    received.push(message.map(String));
    waiting.splice(0).forEach((wake) => wake());
  };
  client.on("message", (channel, text) => add("message", channel, text));
  client.on("pmessage", (pattern, channel, text) => add("pmessage", pattern, channel, text));
  client.on("smessage", (channel, text) => add("smessage", channel, text));
  return async (count) => {
    while (received.length < count) await new Promise((wake) => waiting.push(wake));
    return received.splice(0, count);
  };
}

before(async () => {
  server = await start();
  guarded = await start("auth");
});

after(() => {
  clients.forEach((client) => client.disconnect());
  server.end();
  guarded.end();
});

test("the handshake", async () => {
  const client = connect({ connectionName: "me", db: 0 });
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.client("GETNAME"), "me");
  assert.match(await client.info(), /redis_version:7/);
  await assert.rejects(client.get("key"), /unknown command 'get'/i);
});

test("channels, patterns and shard channels", async () => {
  const subscriber = connect();
  const client = connect();
  const next = collect(subscriber);
  assert.equal(await subscriber.subscribe("news.art", "other"), 2);
  assert.equal(await subscriber.psubscribe("news.*"), 3);
  assert.equal(await client.publish("news.art", "one"), 2);
  assert.deepEqual(await next(2), [
    ["message", "news.art", "one"],
    ["pmessage", "news.*", "news.art", "one"],
  ]);
  assert.deepEqual(await client.pubsub("NUMSUB", "news.art", "x"), ["news.art", 1, "x", 0]);
  assert.deepEqual((await client.pubsub("CHANNELS")).sort(), ["news.art", "other"]);
  assert.equal(await client.pubsub("NUMPAT"), 1);
  assert.equal(await subscriber.unsubscribe("news.art", "other"), 1);
  assert.equal(await subscriber.punsubscribe(), 0);
  // It is an ordinary client again.
  assert.equal(await subscriber.ping(), "PONG");
  assert.equal(await client.publish("news.art", "gone"), 0);
  assert.equal(await subscriber.ssubscribe("news.art"), 1);
  assert.equal(await client.spublish("news.art", "two"), 1);
  assert.deepEqual(await next(1), [["smessage", "news.art", "two"]]);
});

test("a pipeline of a thousand commands, and topics of native callers", async () => {
  const subscriber = connect();
  const client = connect();
  const next = collect(subscriber);
  await subscriber.subscribe("t");
  const pipeline = client.pipeline();
  for (let at = 0; at < 500; at++) pipeline.publish("t", at).echo(at);
  const replies = await pipeline.exec();
  const expected = Array.from({ length: 500 }, (_, at) => [[null, 1], [null, String(at)]]).flat();
  assert.deepEqual(replies, expected);
  const texts = (await next(500)).map((message) => message[2]);
  assert.deepEqual(texts, Array.from({ length: 500 }, (_, at) => String(at)));
  assert.match(await server.ask("publish t native"), /^published/);
  assert.deepEqual(await next(1), [["message", "t", "native"]]);
});

test("calls", async () => {
  const client = connect();
  const echo = (text) => client.call("CALL", "interop.v1.Desk/Echo", JSON.stringify({ text }));
  assert.equal(JSON.parse(await echo("grüß")), "grüß");
  const failed = client.call("CALL", "interop.v1.Desk/Fail", '{"text":"not today"}');
  await assert.rejects(failed, /^ReplyError: FAILED_PRECONDITION not today/);
  // Replies have the order of the commands, also while one waits.
  const order = [];
  const waiting = client.call("CALL", "interop.v1.Desk/Wait", '{"text":"x"}').then(() => order.push("call"));
  const behind = client.ping().then(() => order.push("ping"));
  assert.equal(JSON.parse(await connect().call("CALL", "interop.v1.Desk/Echo", '{"text":"y"}')), "y");
  assert.equal(await server.ask("go"), "gone");
  await Promise.all([waiting, behind]);
  assert.deepEqual(order, ["call", "ping"]);
});

test("credentials", async () => {
  for (const [options, name] of [
    [{ password: "secret" }, "ali"],
    [{ username: "bob", password: "pass" }, "bob"],
  ]) {
    const client = connect({ port: guarded.port, ...options });
    assert.equal(JSON.parse(await client.call("CALL", "interop.v1.Desk/Caller", "{}")), name);
    assert.equal(await client.publish("t", "x"), 0);
  }
  const none = connect({ port: guarded.port, enableReadyCheck: false, retryStrategy: null });
  await assert.rejects(none.publish("t", "x"), /NOAUTH/);
});

test("a subscriber subscribes again after a reconnect", async () => {
  const first = await start();
  const subscriber = connect({ port: first.port });
  const next = collect(subscriber);
  await subscriber.subscribe("t");
  await subscriber.psubscribe("p*");
  first.end();
  const again = await start(String(first.port));
  const client = connect({ port: first.port });
  while ((await client.publish("t", "again")) === 0) await new Promise((done) => setTimeout(done, 20));
  assert.deepEqual((await next(1))[0], ["message", "t", "again"]);
  again.end();
});
