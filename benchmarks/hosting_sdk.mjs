// The tools of hosting.py on npm's @modelcontextprotocol/sdk 1 (legacy): a server and a transport for each session,
// on node:http alone, which costs less than express.
//
// node hosting_sdk.mjs PORT json|sse

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import { load, plain, progress, streamed } from './hosting_tools.mjs';

const { McpServer } = load('@modelcontextprotocol/sdk/server/mcp.js');
const { StreamableHTTPServerTransport } = load('@modelcontextprotocol/sdk/server/streamableHttp.js');

const [port, answers] = process.argv.slice(2);
const isJson = answers === 'json';
const sessions = new Map();

const report = extra => extra.sendNotification(progress(extra._meta?.progressToken));

async function open() {
    const transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: isJson,
        onsessioninitialized: id => sessions.set(id, transport),
    });
    const server = new McpServer({ name: 'bench', version: '0' });
    await (isJson ? plain(server) : streamed(server, report)).connect(transport);
    return transport;
}

createServer(async (request, response) => {
    const id = request.headers['mcp-session-id'];
    const transport = id === undefined ? await open() : sessions.get(id);
    if (transport) await transport.handleRequest(request, response);
    else response.writeHead(404).end();
}).listen(Number(port), '127.0.0.1');
