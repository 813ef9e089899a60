// A server
import { McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

export const server = new McpServer({ name: 'shop', version: '1.0' });

// A tool
server.registerTool(
    'add',
    { description: 'Add two numbers.', inputSchema: z.object({ a: z.number().int(), b: z.number().int() }) },
    async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }] }),
);

// An argument with a description
server.registerTool(
    'greet',
    {
        description: 'Say hello.',
        inputSchema: z.object({ name: z.string().describe('Of the person to greet.') }),
    },
    async ({ name }) => ({ content: [{ type: 'text', text: `Hello ${name}` }] }),
);

// An argument with limits
server.registerTool(
    'dice',
    {
        description: 'The most that a die can show.',
        inputSchema: z.object({ sides: z.number().int().min(2).max(100).default(6) }),
    },
    async ({ sides }) => ({ content: [{ type: 'text', text: String(sides) }] }),
);

// A result with a schema
server.registerTool(
    'price',
    {
        description: 'What an item costs.',
        inputSchema: z.object({ item: z.string() }),
        outputSchema: z.object({ amount: z.number(), currency: z.string() }),
    },
    async () => {
        const price = { amount: 9.5, currency: 'EUR' };
        return { content: [{ type: 'text', text: JSON.stringify(price) }], structuredContent: price };
    },
);

// A failure that the model reads
server.registerTool(
    'buy',
    { description: 'Buy an item.', inputSchema: z.object({ item: z.string() }) },
    async ({ item }) => ({ isError: true, content: [{ type: 'text', text: `${item} is sold out` }] }),
);

// A picture
server.registerTool('logo', { description: 'The logo.', inputSchema: z.object({}) }, async () => ({
    content: [{ type: 'image', data: 'iVBORw0KGgo=', mimeType: 'image/png' }],
}));

// A function that blocks, in a thread
import { Worker } from 'node:worker_threads';

const blocking = `
    const { parentPort, workerData } = require('node:worker_threads');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, workerData * 1000);
    parentPort.postMessage('done');`;

server.registerTool(
    'wait',
    { description: 'Wait a while.', inputSchema: z.object({ seconds: z.number() }) },
    async ({ seconds }) => {
        const worker = new Worker(blocking, { eval: true, workerData: seconds });
        const text = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
        return { content: [{ type: 'text', text }] };
    },
);

// Progress
server.registerTool(
    'pack',
    { description: 'Pack items.', inputSchema: z.object({ items: z.array(z.string()) }) },
    async ({ items }, context) => {
        const progressToken = context.mcpReq._meta?.progressToken;
        for (let progress = 1; progress <= items.length; progress++)
            if (progressToken !== undefined)
                await context.mcpReq.notify({
                    method: 'notifications/progress',
                    params: { progressToken, progress, total: items.length },
                });
        return { content: [{ type: 'text', text: String(items.length) }] };
    },
);

// A log message to the client
server.server.registerCapabilities({ logging: {} });

server.registerTool('check', { description: 'Look at the stock.', inputSchema: z.object({}) }, async (_, context) => {
    await context.mcpReq.log('info', 'looking');
    return { content: [{ type: 'text', text: 'ok' }] };
});

// A question to the user
import { acceptedContent, inputRequired } from '@modelcontextprotocol/server';

const Address = z.object({ street: z.string() });

server.registerTool(
    'deliver',
    { description: 'Deliver to an address.', inputSchema: z.object({}) },
    async (_, context) => {
        const address = acceptedContent(context.mcpReq.inputResponses, 'address', Address);
        if (address === undefined) {
            const question = inputRequired.elicit({ message: 'Where to?', requestedSchema: Address });
            return inputRequired({ inputRequests: { address: question } });
        }
        return { content: [{ type: 'text', text: address.street }] };
    },
);

// A hint that a tool only reads
server.registerTool(
    'stock',
    { description: 'How much is there.', inputSchema: z.object({}), annotations: { readOnlyHint: true } },
    async () => ({ content: [{ type: 'text', text: '3' }] }),
);

// A resource
server.registerResource(
    'hours',
    'shop://hours',
    { description: 'When the shop is open.', mimeType: 'text/plain' },
    async uri => ({ contents: [{ uri: uri.href, text: '9 to 5' }] }),
);

// A template of resources
import { ResourceTemplate } from '@modelcontextprotocol/server';

server.registerResource(
    'item',
    new ResourceTemplate('shop://items/{name}', { list: undefined }),
    { description: 'An item.', mimeType: 'text/plain' },
    async (uri, { name }) => ({ contents: [{ uri: uri.href, text: { tea: 'Assam' }[name] ?? '' }] }),
);

// A prompt
server.registerPrompt(
    'slogan',
    { description: 'Have a slogan written.', argsSchema: z.object({ product: z.string() }) },
    ({ product }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Write a slogan for ${product}.` } }],
    }),
);

// Completion of an argument
import { completable } from '@modelcontextprotocol/server';

const products = value => ['tea', 'toast'].filter(name => name.startsWith(value));

server.registerPrompt(
    'motto',
    { description: 'Have a motto written.', argsSchema: z.object({ product: completable(z.string(), products) }) },
    ({ product }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Write a motto for ${product}.` } }],
    }),
);

// A tool that comes and goes while the server runs
server.registerTool('open_sale', { description: 'Add a tool.', inputSchema: z.object({}) }, async () => {
    server.registerTool('bargain', { inputSchema: z.object({}) }, async () => ({
        content: [{ type: 'text', text: 'half the price' }],
    }));
    return { content: [{ type: 'text', text: 'open' }] };
});

// Something that all calls share
async function shared() {
    const database = await Promise.resolve('connected');
    const server = new McpServer({ name: 'shared', version: '1.0' });
    server.registerTool('database', { inputSchema: z.object({}) }, async () => ({
        content: [{ type: 'text', text: database }],
    }));
    return server;
}

// A call from a client in the same process
import { Client } from '@modelcontextprotocol/client';
import { InMemoryTransport } from '@modelcontextprotocol/server';

export async function call(name = 'add', args = { a: 1, b: 2 }) {
    const [here, there] = InMemoryTransport.createLinkedPair();
    const client = new Client({ name: 'here', version: '1.0' });
    await Promise.all([server.connect(there), client.connect(here)]);
    const result = await client.callTool({ name, arguments: args });
    await client.close();
    return result.content[0].text;
}

// Serving over HTTP
import { createServer } from 'node:http';

import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler } from '@modelcontextprotocol/server';

export function serve() {
    return createServer(toNodeHandler(createMcpHandler(shared))).listen(8000, '127.0.0.1');
}
