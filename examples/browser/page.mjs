// Calls the server that the page came from, in each way that browsers have, and shows the answers.
//
// `<html data-done>` is `right` or `wrong` once every call of the table was answered; each row has `data-right`.

import { call as grpcWeb } from "./grpcweb.mjs";
import { connect as connectJsonRpc } from "./jsonrpc.mjs";
import { Channel } from "./switchboard.mjs";

/** Timed calls of each row, after a first one that fills caches. */
const REPEATS = 20;
const PATIENCE_MS = 10_000;
const LIVE = { count: 10_000, intervalMs: 100 };

const find = (id) => document.getElementById(id);
const socketUrl = new URL("/", location.href.replace(/^http/, "ws")).href;

/** What must come back, whatever the wire. */
const EXPECTED = {
  "Greeter.Greet": "hello Ada",
  "Greeter.Watch": "0, 1, 2",
  "Greeter.Sum": "42, the sum of 3",
  "Greeter.Chat": "ONE, TWO",
  "Posts.Query": "6 posts: One port for …",
};

const greeting = (reply) => reply.text;
const ticks = (list) => list.map((tick) => tick.n ?? 0).join(", ");
const total = ({ sum, count }) => `${sum}, the sum of ${count}`;
const notes = (list) => list.map((note) => note.text).join(", ");
const posts = ({ posts }) => `${posts.length} posts: ${posts[0].title.split(" ").slice(0, 3).join(" ")} …`;

// Connect: a POST with JSON, and the answer as JSON.
async function connectJson(method, message) {
  const response = await fetch(`/${method}`, {
    method: "POST",
    headers: { "content-type": "application/json", "connect-protocol-version": "1" },
    body: JSON.stringify(message),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${answer.code}: ${answer.message}`);
  return answer;
}

// Just enough of protobuf for the messages that go over gRPC-Web: one field each, a text or a small number.
const textField = (text) => {
  const bytes = new TextEncoder().encode(text);
  return Uint8Array.of(0x0a, bytes.length, ...bytes);
};
const readText = (bytes) => new TextDecoder().decode(bytes.subarray(2));
const numberField = (value) => Uint8Array.of(0x08, value);
const readNumber = (bytes) => bytes[1] ?? 0;

/** Each way: how it is opened, the calls that it carries, and how it is closed. */
const WIRES = [
  {
    name: "Connect JSON, fetch",
    calls: {
      "Greeter.Greet": async () => greeting(await connectJson("demo.v1.Greeter/Greet", { name: "Ada" })),
      "Posts.Query": async () => posts(await connectJson("demo.v1.Posts/Query", {})),
    },
  },
  {
    name: "gRPC-Web, fetch",
    calls: {
      "Greeter.Greet": async () => {
        let text;
        for await (const reply of grpcWeb("demo.v1.Greeter/Greet", textField("Ada"))) text = readText(reply);
        return text;
      },
      "Greeter.Watch": async () => {
        const seen = [];
        for await (const tick of grpcWeb("demo.v1.Greeter/Watch", numberField(3))) seen.push({ n: readNumber(tick) });
        return ticks(seen);
      },
    },
  },
  {
    name: "Native wire, WebSocket",
    open: () => Channel.connect(socketUrl),
    calls: {
      "Greeter.Greet": async (channel) => greeting(await channel.unary("demo.v1.Greeter/Greet", { name: "Ada" })),
      "Greeter.Watch": async (channel) => {
        const seen = [];
        for await (const tick of channel.serverStream("demo.v1.Greeter/Watch", { count: 3 })) seen.push(tick);
        return ticks(seen);
      },
      "Greeter.Sum": async (channel) => {
        const upload = channel.clientStream("demo.v1.Greeter/Sum");
        for (const value of [1, 2, 39]) await upload.send({ value });
        return total(await upload.finish());
      },
      "Greeter.Chat": async (channel) => {
        const chat = channel.bidi("demo.v1.Greeter/Chat");
        const seen = [];
        for (const text of ["one", "two"]) {
          await chat.send({ text });
          seen.push((await chat.next()).value);
        }
        chat.finish();
        for await (const note of chat) seen.push(note);
        return notes(seen);
      },
      "Posts.Query": async (channel) => posts(await channel.unary("demo.v1.Posts/Query", {})),
    },
  },
  {
    name: "JSON-RPC, WebSocket",
    open: () => connectJsonRpc(socketUrl),
    calls: {
      "Greeter.Greet": async (client) => greeting(await client.request("Greeter.Greet", { name: "Ada" })),
      "Greeter.Watch": async (client) => {
        const seen = [];
        await client.request("Greeter.Watch", { count: 3 }, (tick) => seen.push(tick));
        return ticks(seen);
      },
      "Posts.Query": async (client) => posts(await client.request("Posts.Query", {})),
    },
  },
];

/** Calls once, then again and again; the last answer, and the median of the times in microseconds. */
async function measure(call) {
  let answer = await within(call());
  const times = [];
  for (let n = 0; n < REPEATS; n += 1) {
    const start = performance.now();
    answer = await within(call());
    times.push((performance.now() - start) * 1000);
  }
  times.sort((a, b) => a - b);
  return { answer, micros: Math.round(times[REPEATS / 2]) };
}

function within(promise) {
  const late = new Promise((_, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${PATIENCE_MS / 1000} s`)), PATIENCE_MS);
    promise.finally(() => clearTimeout(timer)).catch(() => {});
  });
  return Promise.race([promise, late]);
}

/** Whether the button waits for what it began. */
const waits = (id) => find(id).ariaDisabled === "true";
const wait = (id, waiting) => (find(id).ariaDisabled = String(waiting));

function element(name, text, properties = {}) {
  return Object.assign(document.createElement(name), { textContent: text, ...properties });
}

/** One row; returns whether its answer is right. */
async function show(group, method, call) {
  const row = element("tr", "");
  group.append(row);
  let [text, time, right] = ["", "", false];
  try {
    const { answer, micros } = await measure(call);
    right = answer === EXPECTED[method];
    text = right ? answer : `wrong: ${answer}`;
    time = micros.toLocaleString("en");
  } catch (error) {
    text = `failed: ${error.message}`;
  }
  row.dataset.right = right;
  row.append(element("td", method), element("td", text), element("td", time, { className: "number" }));
  return right;
}

/** Calls every method over every wire, one after the other. */
async function callAll() {
  const root = document.documentElement;
  delete root.dataset.done;
  wait("again", true);
  find("summary").textContent = "Calling …";
  for (const old of find("calls").querySelectorAll("tbody")) old.remove();
  const outcomes = [];
  for (const { name, open, calls } of WIRES) {
    const group = element("tbody", "");
    const head = element("tr", "");
    head.append(element("th", name, { colSpan: 3, scope: "rowgroup" }));
    group.append(head);
    find("calls").append(group);
    let connection;
    const connected = async () => (connection ??= await open?.());
    for (const [method, call] of Object.entries(calls)) {
      outcomes.push(await show(group, method, async () => call(await connected())));
    }
    connection?.close();
  }
  const right = outcomes.filter(Boolean).length;
  find("summary").textContent = `${right} of ${outcomes.length} answers are right.`;
  wait("again", false);
  root.dataset.done = right === outcomes.length ? "right" : "wrong";
}

/** The stream that runs, if one does. */
let live = null;

/** Counts ticks until the stream ends, or is stopped. */
async function count() {
  const [button, state] = [find("stream"), find("stream-state")];
  wait("stream", true);
  state.textContent = "Connecting …";
  let channel;
  try {
    channel = await Channel.connect(socketUrl);
    live = channel.serverStream("demo.v1.Greeter/Watch", LIVE);
    button.textContent = "Stop";
    wait("stream", false);
    state.textContent = `Ten a second, ${LIVE.count.toLocaleString("en")} at most.`;
    let seen = 0;
    for await (const tick of live) {
      if ((tick.n ?? 0) !== seen) throw new Error(`tick ${tick.n} came where ${seen} was next`);
      find("ticks").value = seen += 1;
    }
    state.textContent = "The stream has ended.";
  } catch (status) {
    state.textContent = status.code === 1 ? "Stopped." : `Failed: ${status.message}`;
  }
  channel?.close();
  live = null;
  button.textContent = "Start";
  wait("stream", false);
}

find("origin").textContent = location.origin;
find("again").onclick = () => waits("again") || callAll();
find("stream").onclick = () => waits("stream") || (live ? live.cancel() : count());
callAll().then(count);
