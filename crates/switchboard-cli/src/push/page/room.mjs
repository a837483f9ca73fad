// Follows a room with an EventSource, which reconnects by itself and continues after the last event that it has.

const element = (id) => document.getElementById(id);
const entriesMax = 200;
let events;

function show(text) {
  const entry = document.createElement("li");
  entry.textContent = text;
  element("entries").append(entry);
  while (element("entries").childElementCount > entriesMax) element("entries").firstElementChild.remove();
}

function join(room, token) {
  events?.close();
  element("entries").replaceChildren();
  const query = new URLSearchParams({ room, last: "10" });
  if (token) query.set("token", token);
  events = new EventSource(`/events?${query}`);
  const state = (text) => (element("state").textContent = text);
  state(`Joining ${room} …`);
  events.onopen = () => state(`In the room ${room}.`);
  events.onerror = () => {
    const isClosed = events.readyState === EventSource.CLOSED;
    state(isClosed ? `Refused: the token or the room ${room} is not valid.` : "Disconnected; connecting again …");
  };
  events.onmessage = ({ data }) => {
    const entry = JSON.parse(data);
    const content = "data" in entry ? entry.data : entry.base64;
    show(typeof content === "string" ? content : JSON.stringify(content));
  };
  events.addEventListener("gap", ({ data }) => show(`entries are missing: ${data}`));
  events.addEventListener("disconnected", ({ data }) => show(`disconnected: ${data}`));
}

async function push(room, text, token) {
  const bytes = new TextEncoder().encode(JSON.stringify(text));
  const payload = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const headers = { "content-type": "application/json", "connect-protocol-version": "1" };
  if (token) headers.authorization = `Bearer ${token}`;
  const body = JSON.stringify({ targets: [{ room }], entry: { payload, codec: "json" } });
  const response = await fetch("/switchboard.push.v1.Push/Publish", { method: "POST", headers, body });
  if (response.ok) return "";
  const error = await response.json().catch(() => ({}));
  return error.message ?? `The gateway responded with HTTP ${response.status}.`;
}

element("join").addEventListener("submit", (event) => {
  event.preventDefault();
  join(element("room").value, element("token").value);
});

element("push").addEventListener("submit", async (event) => {
  event.preventDefault();
  const outcome = await push(element("room").value, element("message").value, element("api").value)
    .catch((error) => error.message);
  element("outcome").textContent = outcome;
  if (!outcome) element("message").value = "";
});

join(element("room").value, "");
