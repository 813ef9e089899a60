// Requests of the newest revision over HTTP: a POST each, answered by JSON or by a stream of events.

const VERSION = "2026-07-28";
const KEY = "io.modelcontextprotocol/";
const NAMED = { "tools/call": "name", "prompts/get": "name", "resources/read": "uri" };
let number = 0;

function header(value) {
  const text = String(value);
  if (/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?")) return text;
  const bytes = new TextEncoder().encode(text);
  return `=?base64?${btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(""))}?=`;
}

function mirrored(schema, value) {
  // Arguments that the schema marks are repeated in headers.
  const found = {};
  for (const [name, one] of Object.entries(schema?.properties ?? {})) {
    if (value?.[name] === undefined || value[name] === null) continue;
    if (one["x-mcp-header"]) found[`Mcp-Param-${one["x-mcp-header"]}`] = header(value[name]);
    else if (one.type === "object") Object.assign(found, mirrored(one, value[name]));
  }
  return found;
}

export async function request(method, params = {}, { schema, onNews = () => {}, signal } = {}) {
  const id = ++number;
  const meta = {
    [`${KEY}protocolVersion`]: VERSION,
    [`${KEY}clientInfo`]: { name: "callboard-dev", version: "1" },
    [`${KEY}clientCapabilities`]: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    [`${KEY}logLevel`]: "debug",
    progressToken: id,
  };
  const headers = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Mcp-Method": method,
    ...mirrored(schema, params.arguments),
  };
  if (NAMED[method]) headers["Mcp-Name"] = header(params[NAMED[method]]);
  const body = JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } });
  const response = await fetch("/mcp", { method: "POST", headers, body, signal });
  const kind = response.headers.get("content-type") ?? "";
  if (kind.includes("application/json")) return answered(await response.json());
  if (!kind.includes("text/event-stream")) throw new Error(`HTTP ${response.status}: ${await response.text()}`);
  for await (const message of events(response.body)) {
    if (message.id === id && !message.method) return answered(message);
    onNews(message);
  }
  throw new Error("the server ended the stream");
}

function answered(message) {
  if (!message.error) return message.result;
  throw new Error(`${message.error.message} (${message.error.code})`);
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
        if (data.length && data.join("")) yield JSON.parse(data.join("\n"));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export async function all(method, member) {
  // Every page of a list; none if the server has no such list.
  const found = [];
  let cursor;
  try {
    do {
      const result = await request(method, cursor === undefined ? {} : { cursor });
      found.push(...result[member]);
      cursor = result.nextCursor;
    } while (cursor !== undefined && found.length < 5000);
  } catch (error) {
    if (!String(error.message).includes("(-32601)")) throw error;
  }
  return found;
}
