// The page of `callboard dev`: what the server offers, a form for each of it, and what came of a call.

import { element, fields } from "./form.js";
import { all, request } from "./rpc.js";

const byId = (id) => document.getElementById(id);
const json = (value) => element("pre", { textContent: JSON.stringify(value, null, 2) });
let offered = [];
let chosen = "";

function state(text) {
  byId("state").textContent = text;
}

function variables(template) {
  const names = [...template.matchAll(/\{[+#./;?&]?([^}]+)\}/g)].flatMap((one) => one[1].split(","));
  return names.map((one) => one.replace(/[:*].*$/, ""));
}

function prompted(prompt) {
  const properties = Object.fromEntries((prompt.arguments ?? []).map((one) => [one.name, { type: "string", ...one }]));
  return { properties, required: (prompt.arguments ?? []).filter((one) => one.required).map((one) => one.name) };
}

const KINDS = [
  {
    title: "Tools", method: "tools/list", member: "tools", verb: "Call", key: (one) => one.name,
    schema: (one) => one.inputSchema,
    ask: (one, given) => ["tools/call", { name: one.name, arguments: given }, one.inputSchema],
  },
  {
    title: "Resources", method: "resources/list", member: "resources", verb: "Read", key: (one) => one.uri,
    schema: () => ({}),
    ask: (one) => ["resources/read", { uri: one.uri }],
  },
  {
    title: "Templates", method: "resources/templates/list", member: "resourceTemplates", verb: "Read",
    key: (one) => one.uriTemplate,
    schema: (one) => ({ properties: Object.fromEntries(variables(one.uriTemplate).map((name) => [name, { type: "string" }])) }),
    ask: (one, given) => {
      const filled = one.uriTemplate.replace(/\{([^}]+)\}/g, (_, name) => encodeURIComponent(given[name.replace(/^[+#./;?&]|[:*].*$/g, "")] ?? ""));
      return ["resources/read", { uri: filled }];
    },
  },
  {
    title: "Prompts", method: "prompts/list", member: "prompts", verb: "Get", key: (one) => one.name,
    schema: prompted,
    ask: (one, given) => ["prompts/get", { name: one.name, arguments: given }],
  },
];

async function refresh() {
  const found = await request("server/discover");
  // A list that the server does not offer is not asked for: the answer would be an error, which shows in the console.
  const has = (kind) => kind.method.split("/")[0] in (found.capabilities ?? {});
  const lists = await Promise.all(KINDS.map((kind) => (has(kind) ? all(kind.method, kind.member) : [])));
  const info = found._meta?.["io.modelcontextprotocol/serverInfo"] ?? {};
  byId("name").textContent = info.name ? `${info.title ?? info.name} ${info.version ?? ""}` : "callboard dev";
  offered = lists.flatMap((list, at) => list.map((one) => ({ kind: KINDS[at], one, id: `${KINDS[at].title} ${KINDS[at].key(one)}` })));
  showList();
  const still = offered.find((entry) => entry.id === chosen);
  if (still && JSON.stringify(still.one) !== byId("detail").dataset.shown) show(still);
  state(`${offered.length} offered`);
}

function showList() {
  const parts = [];
  for (const kind of KINDS) {
    const entries = offered.filter((entry) => entry.kind === kind);
    if (entries.length) parts.push(element("h3", { textContent: kind.title }));
    for (const entry of entries) {
      const button = element("button", { type: "button", textContent: entry.one.title ?? kind.key(entry.one) });
      button.dataset.id = entry.id;
      button.setAttribute("aria-current", String(entry.id === chosen));
      button.addEventListener("click", () => show(entry));
      parts.push(button);
    }
  }
  byId("list").replaceChildren(...parts);
}

function show(entry) {
  chosen = entry.id;
  showList();
  const { kind, one } = entry;
  const detail = byId("detail");
  detail.dataset.shown = JSON.stringify(one);
  const [labels, read] = fields(kind.schema(one));
  const outcome = element("div", { id: "outcome" });
  const send = element("button", { type: "submit", textContent: kind.verb });
  const stop = element("button", { type: "button", textContent: "Cancel", className: "second", hidden: true });
  const form = element("form", { noValidate: true }, ...labels, element("div", { className: "row" }, send, stop));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(kind, one, read, outcome, send, stop);
  });
  detail.replaceChildren(
    element("h2", { textContent: kind.key(one) }),
    element("p", { className: "quiet", textContent: one.description ?? "" }),
    form,
    outcome,
    element("details", {}, element("summary", { textContent: "definition" }), json(one)),
  );
}

async function run(kind, one, read, outcome, send, stop) {
  const news = element("div");
  const time = element("p", { className: "quiet", textContent: "waiting" });
  outcome.replaceChildren(element("h3", { textContent: "Result" }), time, news);
  const abort = new AbortController();
  stop.hidden = false;
  stop.onclick = () => abort.abort();
  send.disabled = true;
  const began = performance.now();
  try {
    const [method, params, schema] = kind.ask(one, read());
    const options = { schema, signal: abort.signal, onNews: (message) => tell(news, message) };
    let result = await request(method, params, options);
    while (result.resultType === "input_required") {
      const inputResponses = await answers(result.inputRequests ?? {}, outcome);
      const more = result.requestState === undefined ? {} : { requestState: result.requestState };
      result = await request(method, { ...params, inputResponses, ...more }, options);
    }
    time.textContent = `${(performance.now() - began).toFixed(1)} ms`;
    outcome.append(...shown(result));
    outcome.dataset.done = result.isError ? "error" : "fine";
  } catch (error) {
    time.textContent = "";
    outcome.append(element("p", { className: "bad", textContent: abort.signal.aborted ? "cancelled" : error.message }));
    outcome.dataset.done = "error";
  } finally {
    send.disabled = false;
    stop.hidden = true;
  }
}

function tell(news, message) {
  const params = message.params ?? {};
  if (message.method === "notifications/progress") {
    let bar = news.querySelector("progress");
    if (!bar) news.append(element("p", {}, (bar = element("progress")), " ", element("span")));
    if (params.total) bar.max = params.total;
    bar.value = params.progress;
    bar.nextElementSibling.textContent = params.message ?? `${params.progress}${params.total ? ` of ${params.total}` : ""}`;
  } else if (message.method === "notifications/message") {
    const text = typeof params.data === "string" ? params.data : JSON.stringify(params.data);
    news.append(element("p", { className: "quiet log", textContent: `${params.level}: ${text}` }));
  }
}

async function answers(asked, outcome) {
  const found = {};
  for (const [key, question] of Object.entries(asked)) found[key] = await answer(question, outcome);
  return found;
}

function answer(question, outcome) {
  const params = question.params ?? {};
  if (question.method === "roots/list") return { roots: [] };
  const isSampling = question.method === "sampling/createMessage";
  const schema = isSampling ? { properties: { text: { type: "string", title: "answer of the model" } } } : params.requestedSchema;
  const [labels, read] = fields(schema);
  const said = isSampling ? JSON.stringify(params.messages) : params.message;
  return new Promise((resolve) => {
    const accept = element("button", { type: "submit", textContent: "Answer" });
    const decline = element("button", { type: "button", textContent: "Decline", className: "second" });
    const form = element("form", { className: "ask", noValidate: true });
    const link = /^https?:/.test(params.url ?? "") ? [element("a", { href: params.url, textContent: params.url, target: "_blank", rel: "noreferrer" })] : [];
    form.append(element("p", { textContent: said ?? "" }), ...link, ...labels, element("div", { className: "row" }, accept, decline));
    const end = (value) => {
      form.remove();
      resolve(value);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = read();
      const reply = { role: "assistant", content: { type: "text", text: given.text ?? "" }, model: "callboard-dev", stopReason: "endTurn" };
      end(isSampling ? reply : { action: "accept", ...(params.requestedSchema ? { content: given } : {}) });
    });
    decline.addEventListener("click", () => end(isSampling ? { role: "assistant", content: { type: "text", text: "" }, model: "none" } : { action: "decline" }));
    outcome.append(form);
  });
}

function shown(result) {
  const parts = [];
  if (result.isError) parts.push(element("p", { className: "bad", textContent: "the tool failed" }));
  for (const one of result.content ?? result.contents ?? []) parts.push(block(one));
  for (const one of result.messages ?? []) parts.push(element("h3", { textContent: one.role }), block(one.content));
  if (result.structuredContent !== undefined) parts.push(element("h3", { textContent: "structured" }), json(result.structuredContent));
  return parts;
}

function block(one) {
  const source = `data:${one.mimeType};base64,${one.data ?? one.blob}`;
  if (one.type === "image" || (one.blob && one.mimeType?.startsWith("image/"))) return element("img", { src: source, alt: one.mimeType });
  if (one.type === "audio") return element("audio", { src: source, controls: true });
  if (one.text !== undefined) return element("pre", { textContent: one.text });
  return json(one);
}

async function follow() {
  // The subscription ends when the server is started anew: then everything is looked at again.
  for (;;) {
    try {
      await refresh();
      const wanted = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
      await request("subscriptions/listen", { notifications: wanted }, {
        onNews: (message) => message.method?.endsWith("list_changed") && refresh(),
      });
    } catch (error) {
      state(error.message.includes("stream") ? "reloading" : `not connected: ${error.message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

const live = document.querySelector('meta[name="live"]')?.content;
if (live) Object.assign(byId("live"), { href: live, hidden: false });
follow();
