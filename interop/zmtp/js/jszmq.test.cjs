// jszmq in WebSockets (ZWS 2.0) on the port of a server with the plugin for ZeroMQ: `node --test`, with ZMTP_SERVER and
// JSZMQ, the folder of the package. jszmq offers the sub-protocol ZWS2.0 alone, which has no socket type: the path of a
// client names its own one.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const { after, before, test } = require("node:test");
const { createRequire } = require("node:module");

const zmq = createRequire(`${process.env.JSZMQ}/index.js`)("jszmq");

let server;
const sockets = [];

/** Starts zmtp-server. */
async function start() {
  const child = spawn(process.env.ZMTP_SERVER, [], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => (await lines.next()).value;
  const address = (await line()).replace("listening on ", "");
  const ask = async (command) => {
    child.stdin.write(`${command}\n`);
    return line();
  };
  return { address, ask, end: () => child.kill() };
}

function connect(type) {
  const socket = zmq.socket(type);
  sockets.push(socket);
  socket.connect(`ws://${server.address}/zmtp/${type}`);
  return socket;
}

/** Returns a function that resolves to the next message of a socket, as texts. */
function inbox(socket) {
  const received = [];
  const waiting = [];
  socket.on("message", (...frames) => {
    const message = frames.map(String);
    if (waiting.length > 0) waiting.shift()(message);
    else received.push(message);
  });
  return () => (received.length > 0 ? received.shift() : new Promise((wake) => waiting.push(wake)));
}

before(async () => {
  server = await start();
});

after(() => {
  sockets.forEach((socket) => socket.close());
  server.end();
});

test("SUB receives the entries of its prefixes", async () => {
  const sub = connect("sub");
  const next = inbox(sub);
  sub.subscribe("quotes/");
  const message = next();
  let isDone = false;
  message.then(() => (isDone = true));
  // Entries before the subscription has arrived are not for it.
  while (!isDone) {
    await server.ask("publish other no");
    await server.ask("publish quotes/acme 12.5");
  }
  assert.deepEqual(await message, ["quotes/acme", "12.5"]);
});

test("PUB and PUSH publish", async () => {
  const entry = async (topic) => {
    for (;;) {
      const line = await server.ask("next");
      if (line.startsWith(`entry ${topic} `)) return line;
    }
  };
  connect("push").send("task");
  assert.equal(await entry("jobs"), "entry jobs task");
  const pub = connect("pub");
  const published = entry("from/js");
  // A PUB drops what it sends before the subscription of the server has arrived.
  const repeat = setInterval(() => pub.send(["from/js", "news"]), 5);
  assert.equal(await published, "entry from/js news");
  clearInterval(repeat);
});

test("PULL receives jobs", async () => {
  const next = inbox(connect("pull"));
  await server.ask("publish jobs one");
  // The job of the PUSH above may be the first one.
  const jobs = [await next(), await next()].flat();
  assert.ok(jobs.includes("one") && jobs.includes("task"), jobs.join());
});

test("REQ and DEALER call services", async () => {
  const req = connect("req");
  const reply = inbox(req);
  for (const text of ["hello", "x".repeat(70_000)]) {
    req.send(["interop.v1.Clock/Ping", JSON.stringify({ text })]);
    assert.deepEqual(await reply(), ["OK", JSON.stringify(text)]);
  }
  const dealer = connect("dealer");
  const response = inbox(dealer);
  dealer.send(["7", "", "interop.v1.Clock/Fail", JSON.stringify({ text: "no clock" })]);
  assert.deepEqual((await response()).slice(0, 4), ["7", "", "NOT_FOUND", "no clock"]);
});
