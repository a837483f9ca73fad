// @nats-io/transport-node against a server: `node peer.cjs HOST:PORT`. Prints `done` when all cases have passed.

const assert = require("node:assert/strict");
const { connect, headers } = require("@nats-io/transport-node");

const LIMIT = 20_000;

async function main() {
  const options = { servers: process.argv[2], reconnect: false };
  const one = await connect(options);
  const other = await connect({ ...options, noEcho: true });

  // Wildcards, and headers.
  const quotes = one.subscribe("quotes.*", { max: 2 });
  const all = one.subscribe("quotes.>");
  await one.flush();
  const sent = headers();
  sent.append("Trace-Id", "7");
  other.publish("quotes.acme", "12.5", { headers: sent });
  other.publish("quotes.acme.eu", "11.5");
  other.publish("quotes.zoo", "1");
  await other.flush();
  const received = [];
  for await (const message of quotes) {
    received.push([message.subject, message.string()]);
    if (message.subject === "quotes.acme") {
      assert.equal(message.headers.get("Trace-Id"), "7");
    }
  }
  assert.deepEqual(received, [["quotes.acme", "12.5"], ["quotes.zoo", "1"]]);
  await one.flush();
  assert.equal(all.getReceived(), 3);

  // A client does not get its own messages if it does not want them.
  const own = other.subscribe("own");
  other.publish("own", "x");
  await other.flush();
  assert.equal(own.getReceived(), 0);

  // Queue groups.
  const members = [one, other].map((client) => client.subscribe("jobs", { queue: "workers" }));
  await Promise.all([one.flush(), other.flush()]);
  const publisher = await connect(options);
  for (let job = 0; job < 50; job++) {
    publisher.publish("jobs", String(job));
  }
  await publisher.flush();
  await Promise.all([one.flush(), other.flush()]);
  assert.equal(members[0].getReceived() + members[1].getReceived(), 50);

  // Requests: of clients, of a service, and without a responder.
  one.subscribe("square", { callback: (_, message) => message.respond(String(Number(message.string()) ** 2)) });
  await one.flush();
  const square = await other.request("square", "12", { timeout: LIMIT });
  assert.equal(square.string(), "144");
  const greeting = await other.request("interop.v1.Greeter.Greet", '{"name":"Ali"}', { timeout: LIMIT });
  assert.equal(greeting.json(), "hello Ali from unknown");
  const failed = await other.request("interop.v1.Greeter.Greet", '{"name":""}', { timeout: LIMIT });
  assert.equal(failed.headers.get("Nats-Service-Error-Code"), "400");
  await assert.rejects(other.request("nothing.here", "", { timeout: LIMIT }), /no responders/i);

  // Reserved subjects.
  const reserved = one.subscribe("$SYS.>");
  await assert.rejects(async () => {
    for await (const _ of reserved) {
      // There is none.
    }
  }, /permissions violation/i);

  await publisher.drain();
  await other.close();
  await one.close();
  console.log("done");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
