// WebSocket by ws: JSON-RPC in text messages, the native wire in binary ones. Takes the address of the server, the file
// of the client for browsers, and whether the server compresses.
"use strict";

const assert = require("node:assert");
const { on, once } = require("node:events");
const { pathToFileURL } = require("node:url");
const WebSocket = require("ws");

const url = `ws://${process.argv[2]}/`;

/** An open connection and its messages, none lost however many come at once. */
async function open(protocols) {
  const ws = new WebSocket(url, protocols);
  const messages = on(ws, "message");
  await once(ws, "open");
  return { ws, next: async () => (await messages.next()).value };
}

async function text() {
  const { ws, next } = await open();
  const compressed = process.argv[4] === "compressed";
  assert.strictEqual(ws.extensions, compressed ? "permessage-deflate" : "");
  const request = JSON.stringify({ jsonrpc: "2.0", method: "Greeter.Greet", params: ["Ada"], id: "é" });
  const bytes = Buffer.from(request);
  // In fragments that cut a character in two, with a ping in between.
  const cut = bytes.length - 3;
  ws.send(bytes.subarray(0, cut), { binary: false, fin: false });
  const pong = once(ws, "pong");
  ws.ping("still there?");
  ws.send(bytes.subarray(cut), { binary: false, fin: true });
  assert.strictEqual((await pong)[0].toString(), "still there?");
  const [answer, binary] = await next();
  assert.strictEqual(binary, false);
  assert.deepStrictEqual(JSON.parse(answer), { jsonrpc: "2.0", result: { text: "hello Ada" }, id: "é" });
  ws.send(Buffer.alloc(5 << 20, " "), { binary: false });
  const [code, reason] = await once(ws, "close");
  assert.deepStrictEqual([code, /limit/.test(reason)], [1009, true]);
}

async function stream() {
  const { ws, next } = await open(["jsonrpc"]);
  ws.send(JSON.stringify({ jsonrpc: "2.0", method: "Greeter.Watch", params: { count: 3 }, id: 1 }));
  const seen = [];
  for (let end = false; !end; ) {
    const [message] = await next();
    const { params, id } = JSON.parse(message);
    if (params) seen.push(params.result.n ?? 0);
    end = id === 1;
  }
  assert.deepStrictEqual(seen, [0, 1, 2]);
  ws.close(4000, "enough");
  const [code] = await once(ws, "close");
  assert.strictEqual(code, 4000);
}

async function native() {
  const { Channel, Code } = await import(pathToFileURL(process.argv[3]).href);
  const channel = await Channel.connect(url, { WebSocket });
  assert.deepStrictEqual(await channel.unary("demo.v1.Greeter/Greet", { name: "Ada" }), { text: "hello Ada" });
  await assert.rejects(channel.unary("demo.v1.Greeter/Greet", {}), (error) => error.code === Code.InvalidArgument);
  await assert.rejects(channel.unary("demo.v1.Greeter/Nope", {}), (error) => error.code === Code.Unimplemented);

  const ticks = [];
  for await (const tick of channel.serverStream("demo.v1.Greeter/Watch", { count: 5000 })) ticks.push(tick.n ?? 0);
  assert.deepStrictEqual(ticks, Array.from({ length: 5000 }, (_, n) => n));

  const sum = channel.clientStream("demo.v1.Greeter/Sum");
  for (let n = 1; n <= 1000; n += 1) await sum.send({ value: n });
  assert.deepStrictEqual(await sum.finish(), { sum: "500500", count: 1000 });

  const chat = channel.bidi("demo.v1.Greeter/Chat");
  for (const text of ["a", "b", "x".repeat(100000)]) {
    await chat.send({ text });
    assert.deepStrictEqual(await chat.next(), { value: { text: text.toUpperCase() }, done: false });
  }
  chat.finish();
  assert.strictEqual((await chat.next()).done, true);

  // Far more than the windows hold: both sides wait for each other.
  const flood = channel.bidi("demo.v1.Greeter/Chat");
  const large = "y".repeat(50000);
  const sending = (async () => {
    for (let n = 0; n < 60; n += 1) await flood.send({ text: large });
    flood.finish();
  })();
  let received = 0;
  for await (const note of flood) received += note.text.length;
  await sending;
  assert.strictEqual(received, 60 * large.length);

  const endless = channel.serverStream("demo.v1.Greeter/Watch", { count: 10000, intervalMs: 60000 });
  assert.deepStrictEqual((await endless.next()).done, false);
  endless.cancel();
  await assert.rejects(endless.next(), (error) => error.code === Code.Canceled);

  await assert.rejects(
    channel.unary("demo.v1.Greeter/Greet", { name: "Ada" }, { metadata: { "no blanks": "x" } }),
    (error) => error.code === Code.InvalidArgument,
  );
  const late = channel.serverStream("demo.v1.Greeter/Watch", { count: 2, intervalMs: 60000 }, { timeoutMs: 50 });
  await late.next();
  await assert.rejects(late.next(), (error) => error.code === Code.DeadlineExceeded);
  channel.close();
  await channel.closed;
}

Promise.resolve()
  .then(text)
  .then(stream)
  .then(native)
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
