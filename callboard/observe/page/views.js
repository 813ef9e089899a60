// The views, as data: which tables each has, and what their columns show.

import { buttons } from "./actions.js";
import * as show from "./format.js";
import { Table } from "./table.js";
import { toneOf } from "./tones.js";
import { Tree } from "./tree.js";

const text = (label, key, more = {}) => ({ label, value: (row) => row[key], text: (row) => show.name(row[key]), ...more });
const number = (label, key, say = show.count, more = {}) => ({ label, numeric: true, value: (row) => row[key], text: (row) => say(row[key]), ...more });
const share = (row) => (row.calls ? row.errors / row.calls : null);
const some = (row, key) => (row[key] ? show.count(row[key]) : show.NOTHING);
const used = (row, key, most) => (row[most] ? row[key] / row[most] : "");
const joined = (...parts) => parts.filter((one) => one !== null && one !== undefined && one !== "").map(show.name).join(" · ");

const errors = { label: "Errors", numeric: true, value: share, title: "Failed calls, and their share",
  text: (row) => some(row, "errors"), sub: (row) => (row.errors ? show.percent(share(row)) : "") };
const p50 = number("p50", "p50", show.seconds);
const p99 = number("p99", "p99", show.seconds);
const who = text("Principal", "principal");
const worker = (row) => (row.worker === undefined ? [] : [["worker", show.name(row.worker)]]);

const servers = () => new Table({
  label: "Servers", key: (row) => row.name, empty: "No server is behind this one.", sort: { column: "State", isDown: false },
  columns: [
    text("Server", "name", { sub: (row) => joined(row.transport, row.revision) }),
    { label: "State", value: (row) => `${row.is_up ? 1 : 0} ${row.state}`, text: (row) => show.name(row.state),
      tone: (row) => (row.is_up ? "good" : toneOf(row.state) === "good" ? "warn" : toneOf(row.state)), sub: why },
    { ...number("In flight", "in_flight"), share: (row) => used(row, "in_flight", "max_in_flight"), sub: (row) => (row.parked ? `${show.count(row.parked)} parked` : "") },
    { ...number("Conns", "connections"), title: "Connections, of at most", text: (row) => `${show.count(row.connections)} / ${show.count(row.max_connections)}` },
    { ...number("Calls", "calls"), title: "Calls in all; each second below", sub: (row) => perSecond(row.calls_per_second) },
    { ...errors, sub: (row) => (row.errors ? [show.percent(share(row)), perSecond(row.errors_per_second)].filter(Boolean).join(" · ") : "") }, p50, p99,
    { label: "Restarts", numeric: true, value: (row) => row.restarts, text: (row) => some(row, "restarts") },
    { label: "Process", numeric: true, value: (row) => row.resident, title: "Memory and process id", text: (row) => show.bytes(row.resident), sub: processes },
    { label: "Offers", numeric: true, value: (row) => row.tools, title: "Tools; prompts and resources below", text: (row) => show.plural(row.tools, "tool"), sub: offers },
  ],
  detail: (row) => [
    ...(row.why ? [["why", show.name(row.why)]] : []),
    ...(show.isNumber(row.next_try) ? [["next try", `in ${show.seconds(row.next_try)}`]] : []),
    ["transport", show.name(row.transport)], ["revision", show.name(row.revision)],
    ["in flight", `${show.count(row.in_flight)} of ${show.count(row.max_in_flight)}`],
    ["connections", `${show.count(row.connections)} of ${show.count(row.max_connections)}`],
    ["tools", show.count(row.tools)], ["prompts", show.count(row.prompts)], ["resources", show.count(row.resources)],
    ["templates", show.count(row.resourceTemplates)], ["definitions that wait for approval", show.count(row.withheld)],
    ...(row.pid ? [["CPU", show.seconds(row.cpu_seconds)], ["memory", show.bytes(row.resident)], ["pid", String(row.pid)], ["processes", show.count(row.processes ?? 1)]] : []), ...worker(row),
  ],
  lines: { label: "Standard error, the last lines", load: (row) => standardError(row) },
  actions: (row) => buttons(["restart", "try", "refresh"], row.name),
});

const clients = () => new Table({
  label: "Clients", key: (row) => `${row.worker ?? ""}/${row.name}`, empty: "No client is connected.", sort: { column: "Last active", isDown: false },
  columns: [
    { label: "Client", value: (row) => row.client ?? row.name, text: (row) => show.name(row.client ?? row.name), sub: (row) => joined(row.version, row.name) },
    who, text("Transport", "transport", { sub: (row) => (row.peer ? show.name(row.peer) : "") }), text("Revision", "revision"),
    { ...number("In flight", "in_flight"), sub: (row) => (row.parked ? `${show.count(row.parked)} parked` : "") },
    number("Received", "bytes_in", show.bytes), number("Sent", "bytes_out", show.bytes),
    number("Since", "since", show.time, { title: "How long it is connected" }),
    number("Last active", "idle", show.ago, { title: "When its latest request ended; of a connection without a session, when it last sent or got something" }),
  ],
  detail: (row) => [["name", show.name(row.name)], ["client", show.name(row.client)], ["version", show.name(row.version)],
    ["principal", show.name(row.principal)], ["peer", show.name(row.peer)],
    ...(show.isNumber(row.subscriptions) ? [["subscriptions", show.count(row.subscriptions)]] : []),
    ...(show.isNumber(row.parked) ? [["waits for the client", show.count(row.parked)]] : []),
    ...(show.isNumber(row.served) ? [["requests of this connection", show.count(row.served)]] : [])],
  actions: (row) => buttons(["disconnect"], row.name),
});

const call = [
  { label: "Call", value: (row) => row.target ?? row.method, text: (row) => show.name(row.target ?? row.method), sub: (row) => (row.target && row.method !== "tools/call" ? show.name(row.method) : "") },
  text("Server", "server"),
];
const when = number("When", "ago", show.ago);
const took = number("Took", "seconds", show.seconds);
const error = { ...text("Error", "error"), tone: (row) => (row.error === "cancelled" ? "idle" : row.error ? "bad" : "") };

const running = () => new Table({
  label: "Running and parked", key: began, empty: "No call waits.", sort: { column: "Age", isDown: true },
  columns: [
    ...call,
    { label: "State", value: (row) => row.state, text: (row) => show.name(row.state) + (row.round ? `, round ${row.round}` : ""),
      tone: (row) => (row.state === "running" ? "idle" : toneOf(row.state)) },
    { label: "Progress", numeric: true, value: done, text: progress, share: (row) => done(row) ?? "" },
    number("Age", "age", show.seconds), who,
    { label: "Client", value: (row) => row.client, text: (row) => show.name(row.client), sub: (row) => joined(row.revision, row.worker) },
  ],
}).headed();

const slowest = () => new Table({ label: "Slowest of ten minutes", key: ended, empty: "No call has ended yet.", sort: { column: "Took", isDown: true }, columns: [...call, took, when, error, who] }).headed();
const failed = () => new Table({ label: "Failed", key: ended, empty: "No call has failed.", sort: { column: "When", isDown: false }, columns: [...call, error, when, took, who] }).headed();

const tools = () => new Table({
  label: "Tools and prompts", key: (row) => `${row.kind}/${row.name}`, empty: "Nothing is offered.", sort: { column: "Calls", isDown: true },
  columns: [
    text("Name", "name", { sub: (row) => joined(row.kind === "tool" ? "" : row.kind, row.pin) }), text("Server", "server"),
    { ...number("Calls", "calls"), text: (row) => some(row, "calls") },
    { ...errors, share: (row) => share(row) || "" }, p50, p99,
    { ...number("Last used", "idle"), text: (row) => (row.calls ? show.ago(row.idle) : "never") },
  ],
});

const approvals = () => new Table({
  label: "Tools and skills that wait for approval", key: (row) => row.subject, empty: "No tool or skill waits for approval.", sort: { column: "Definition", isDown: false },
  columns: [text("Definition", "tool"), text("Server", "server"), { label: "Why", value: (row) => row.pinned === "none", text: (row) => (row.pinned === "none" ? "it is new" : "its definition has changed") }],
  detail: (row) => [["definition", show.name(row.tool)], ["server", show.name(row.server)]],
  actions: (row) => buttons(["approve"], row.subject),
});

const waitingCalls = () => new Table({
  label: "Calls that wait for approval", key: (row) => row.id, empty: "No call waits for approval.", sort: { column: "Age", isDown: true },
  columns: [text("Tool", "tool"), text("Server", "server"), text("Principal", "principal"), number("Age", "age", show.seconds),
    { label: "Arguments", value: (row) => row.arguments, text: (row) => show.name(row.arguments) }],
  detail: (row) => [["call", show.name(row.id)], ["digest", show.name(row.digest)], ["arguments", String(row.arguments ?? "")], ["bytes not shown", show.count(row.more)]],
  actions: (row) => buttons(["approve_call", "deny_call"], row.id),
});

const topics = () => new Table({
  label: "Topics", key: (row) => `${row.worker ?? ""}/${row.server ?? ""}/${row.topic}`, empty: "Nobody follows a list or a resource.", sort: { column: "Listeners", isDown: true },
  columns: [text("Topic", "topic", { sub: (row) => joined(row.worker) }), text("Server", "server"), number("Listeners", "listeners"),
    { ...number("Last change", "changed"), title: "Since somebody follows it", text: (row) => (show.isNumber(row.changed) ? show.ago(row.changed) : show.NOTHING) }],
});

// The processes that share the work: the workers of this node, and the other nodes of the cluster.
const nodes = () => new Table({
  label: "Nodes", key: (row) => row.name, empty: "This server has no other nodes.", sort: { column: "Node", isDown: false },
  columns: [
    text("Node", "name", { sub: (row) => (row.is_here ? "this node" : "") }), text("Host", "host"),
    { label: "State", value: (row) => row.is_leaving, text: (row) => (row.is_leaving ? "leaving" : "serving"), tone: (row) => toneOf(row.is_leaving ? "leaving" : "serving"),
      sub: (row) => (row.version ? show.name(row.version) : "") },
    number("Workers", "workers"), number("Clients", "sessions"), number("Conns", "connections"), number("In flight", "in_flight"), number("Parked", "parked"),
    number("Requests", "requests"), { ...errors, value: (row) => (row.requests ? row.errors / row.requests : null), sub: (row) => (row.errors && row.requests ? show.percent(row.errors / row.requests) : "") },
    number("p99", "p99_10s", show.seconds, { title: "Of the last ten seconds" }), number("Memory", "resident", show.bytes),
  ],
}).headed();
const workersOf = () => new Table({
  label: "Workers of this node", key: (row) => row.name, empty: "One process does it all.", sort: { column: "Worker", isDown: false },
  columns: [
    text("Worker", "name"),
    { label: "State", value: (row) => row.state, text: (row) => show.name(row.state), tone: (row) => (row.answers ? toneOf(row.state) : "bad"), sub: (row) => (row.answers ? "" : "does not answer") },
    number("Process", "pid", String),
  ],
}).headed();

const letterCounts = () => new Table({
  label: "By kind and reason", key: (row) => `${row.kind}/${row.reason}`, empty: "No message was lost.", sort: { column: "Count", isDown: true },
  columns: [text("Message", "kind"), text("Reason", "reason"), number("Count", "count")],
}).headed();
const letters = () => new Table({
  label: "Latest", key: (row) => `${row.path}/${row.kind}/${row.reason}/${row.began}`, empty: "No message was lost.", sort: { column: "When", isDown: false },
  columns: [text("To", "path"), text("Message", "kind"), text("Reason", "reason"), when],
}).headed();

// Each: id (also in the address), label, badge, and its tables with where their rows are in a view.
export const VIEWS = [
  { id: "servers", label: "Servers", badge: ({ totals }) => (totals.servers_up < totals.servers ? `${totals.servers_up} / ${totals.servers}` : totals.servers), isShown: ({ totals }) => totals.servers > 0, tables: [[servers, (view) => view.servers]],
    tone: ({ totals }) => totals.servers_up < totals.servers && "bad" },
  { id: "clients", label: "Clients", badge: ({ totals, clients }) => Math.max(totals.sessions, clients.length), tables: [[clients, (view) => view.clients]] },
  { id: "calls", label: "Calls", badge: ({ totals }) => totals.in_flight + totals.parked,
    tables: [[running, (view) => dated(view, view.running, "age")], [slowest, (view) => dated(view, view.slowest, "ago")], [failed, (view) => dated(view, view.failed, "ago")]] },
  { id: "tools", label: "Tools", badge: (view) => view.tools.length, tables: [[tools, (view) => view.tools]] },
  { id: "approvals", label: "Approvals", badge: (view) => (view.approvals?.length ?? 0) + (view.waiting_calls?.length ?? 0),
    isShown: (view) => view.approvals?.length > 0 || view.waiting_calls?.length > 0, tone: () => "warn",
    tables: [[waitingCalls, (view) => view.waiting_calls ?? []], [approvals, (view) => view.approvals ?? []]] },
  { id: "topics", label: "Topics", badge: (view) => view.topics.length, tables: [[topics, (view) => view.topics]] },
  { id: "nodes", label: "Nodes", badge: ({ server }) => server.nodes?.length ?? server.workers?.length, isShown: ({ server }) => Boolean(server.nodes || server.workers),
    tone: ({ server }) => (server.workers ?? []).some((one) => !one.answers) && "bad",
    tables: [[nodes, (view) => view.server.nodes ?? []], [workersOf, (view) => view.server.workers ?? []]] },
  { id: "tree", label: "Tree", tables: [[() => new Tree(), (view) => view]] },
  { id: "letters", label: "Dead letters", badge: ({ dead_letters }) => dead_letters.total,
    tables: [[letterCounts, (view) => view.dead_letters.counts], [letters, (view) => dated(view, view.dead_letters.recent, "ago")]] },
];

// Rows that have no name are told apart by when they began, which stays, while their age grows.
function dated(view, rows, key) {
  return rows.map((row) => ({ ...row, began: Math.round(view.at - row[key]) }));
}

function began(row) {
  return joined(row.worker, row.method, row.target, row.principal, row.client, row.began);
}

function ended(row) {
  return joined(row.worker, row.method, row.target, row.principal, row.seconds, row.began);
}

function why(row) {
  if (row.is_up) return "";
  const next = show.isNumber(row.next_try) ? `next try in ${show.seconds(row.next_try)}` : "";
  const said = row.said?.length ? show.name(row.said.at(-1)) : "";
  return [row.why ? show.name(row.why) : "", said, next].filter(Boolean).join(" · ");
}

// It may be anything: so it is in no view, and asked for when a row is opened.
async function standardError(row) {
  if (row.transport !== "stdio") return [];
  const answer = await fetch(`${location.origin}${location.pathname}api/stderr?server=${encodeURIComponent(row.name)}`);
  return answer.ok ? (await answer.json()).map(show.name) : [];
}

function perSecond(rate) {
  return rate > 0 ? `${show.rate(rate)} / s` : "";
}

function processes(row) {
  if (!row.pid) return "";
  return row.processes > 1 ? `${show.count(row.processes)} processes` : `pid ${row.pid}`;
}

function offers(row) {
  const resources = (row.resources ?? 0) + (row.resourceTemplates ?? 0);
  const parts = [row.prompts && show.plural(row.prompts, "prompt"), resources && show.plural(resources, "resource"), row.withheld && `${row.withheld} withheld`];
  return parts.filter(Boolean).join(", ");
}

function done(row) {
  return show.isNumber(row.progress) && row.total > 0 ? row.progress / row.total : null;
}

function progress(row) {
  if (!show.isNumber(row.progress)) return show.NOTHING;
  return row.total ? `${show.rate(row.progress)} / ${show.rate(row.total)}` : show.rate(row.progress);
}
