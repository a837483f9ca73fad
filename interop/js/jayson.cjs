// JSON-RPC by jayson: over HTTP, bare TCP and WebSocket. Takes the address of the server, HOST:PORT.
"use strict";

const assert = require("node:assert");
const { once } = require("node:events");
const jayson = require("jayson/promise");
const WebSocket = require("ws");

const [host, port] = process.argv[2].split(":");

async function cases(name, client) {
  const greeted = await client.request("demo.v1.Greeter.Greet", { name: "Ada" });
  assert.deepStrictEqual(greeted.result, { text: "hello Ada" }, name);

  const positional = await client.request("Greeter.Greet", ["Ada"]);
  assert.deepStrictEqual(positional.result, { text: "hello Ada" }, name);

  const unknown = await client.request("demo.v1.Greeter.Nope", {});
  assert.strictEqual(unknown.error.code, -32601, name);

  const wrong = await client.request("demo.v1.Greeter.Greet", {});
  assert.strictEqual(wrong.error.code, -32602, name);
  assert.deepStrictEqual(wrong.error.data, { grpcCode: 3, details: [] }, name);

  const batch = [
    client.request("Greeter.Greet", ["one"], undefined, false),
    client.request("Greeter.Greet", ["two"], null, false),
    client.request("Greeter.Nope", [], undefined, false),
  ];
  const answers = await client.request(batch);
  assert.strictEqual(answers.length, 2, name);
  assert.deepStrictEqual(answers.find((answer) => answer.result).result, { text: "hello one" }, name);
  assert.strictEqual(answers.find((answer) => answer.error).error.code, -32601, name);

  const many = await Promise.all(
    Array.from({ length: 50 }, (_, n) => client.request("Greeter.Greet", [`caller ${n}`])),
  );
  many.forEach((answer, n) => assert.strictEqual(answer.result.text, `hello caller ${n}`, name));
}

async function main() {
  await cases("http", jayson.Client.http({ host, port, path: "/rpc" }));
  await cases("tcp", jayson.Client.tcp({ host, port }));
  const ws = new WebSocket(`ws://${host}:${port}/rpc`, "jsonrpc");
  await once(ws, "open");
  assert.strictEqual(ws.protocol, "jsonrpc");
  await cases("websocket", jayson.Client.websocket({ ws }));
  ws.close(1000);
  const [code] = await once(ws, "close");
  assert.strictEqual(code, 1000);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
