// The tools of hosting.py on npm's @modelcontextprotocol/server 2 (modern), with the handler that it advises.
//
// node hosting_server.mjs PORT json|sse

import { createServer } from 'node:http';

import { load, plain, progress, streamed } from './hosting_tools.mjs';

const { createMcpHandler, McpServer } = load('@modelcontextprotocol/server');
const { toNodeHandler } = load('@modelcontextprotocol/node');

const [port, answers] = process.argv.slice(2);
const report = context => context.mcpReq.notify(progress(context.mcpReq._meta?.progressToken));

function fresh() {
    const server = new McpServer({ name: 'bench', version: '0' });
    return answers === 'json' ? plain(server) : streamed(server, report);
}

createServer(toNodeHandler(createMcpHandler(fresh))).listen(Number(port), '127.0.0.1');
