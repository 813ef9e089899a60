// The tools of hosting.py on npm's @modelcontextprotocol/server 2 (modern), with the handler that it advises.
//
// node hosting_server.mjs PORT

import { createServer } from 'node:http';

import { load, progress, register } from './hosting_tools.mjs';

const { createMcpHandler, McpServer } = load('@modelcontextprotocol/server');
const { toNodeHandler } = load('@modelcontextprotocol/node');

const report = context => context.mcpReq.notify(progress(context.mcpReq._meta?.progressToken));
const fresh = () => register(new McpServer({ name: 'bench', version: '0' }), report, (z, shape) => z.object(shape));

createServer(toNodeHandler(createMcpHandler(fresh))).listen(Number(process.argv[2]), '127.0.0.1');
