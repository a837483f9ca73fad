// Prints each event of a stream as a line of JSON, until it is killed: events.mjs URL.
import { EventSource } from "eventsource";

const source = new EventSource(process.argv[2]);
for (const kind of ["message", "gap", "resumed"]) {
  source.addEventListener(kind, (event) => {
    console.log(JSON.stringify({ kind, id: event.lastEventId, data: JSON.parse(event.data) }));
  });
}
source.onopen = () => console.log(JSON.stringify({ kind: "open" }));
source.onerror = (error) => console.error(error.message);
