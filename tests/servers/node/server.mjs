// The stage on npm's @modelcontextprotocol/server 2, which speaks both eras: `node server.mjs stdio`, or `http PORT`.

import { createRequire } from 'node:module';
import { createServer } from 'node:http';

// The packages are installed elsewhere: where this process runs.
const load = createRequire(`${process.cwd()}/server.mjs`);
const { acceptedContent, createMcpHandler, inputRequired, inputResponse, McpServer } = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');
const { toNodeHandler } = load('@modelcontextprotocol/node');
const { z } = load('zod');

const [way, port] = process.argv.slice(2);
const cancelled = new Set();
const said = text => ({ content: [{ type: 'text', text }] });
const sleep = (seconds, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, seconds * 1000);
        signal?.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(new Error('aborted'));
        });
    });
const report = (context, progress, total) =>
    context.mcpReq.notify({
        method: 'notifications/progress',
        params: { progressToken: context.mcpReq._meta?.progressToken, progress, total },
    });

let notifier;

function stage() {
    const server = new McpServer(
        { name: 'stage', version: '2' },
        { capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } },
    );
    const tool = (name, shape, run) => server.registerTool(name, { inputSchema: z.object(shape) }, run);

    tool('echo', { text: z.string() }, async ({ text }) => said(text));
    tool('fail', {}, async () => {
        throw new Error('it did not work');
    });
    tool('count', { to: z.number(), pause: z.number() }, async ({ to, pause }, context) => {
        for (let number = 1; number <= to; number += 1) {
            await report(context, number, to);
            await sleep(pause);
        }
        return said(`counted to ${to}`);
    });
    tool('linger', { tag: z.string() }, async ({ tag }, context) => {
        await report(context, 1);
        await sleep(60, context.mcpReq.signal).catch(() => cancelled.add(tag));
        return said('stayed');
    });
    tool('was_cancelled', { tag: z.string() }, async ({ tag }) => {
        for (let waited = 0; waited < 250 && !cancelled.has(tag); waited += 1) await sleep(0.02);
        return said(cancelled.has(tag) ? 'cancelled' : 'still there');
    });
    tool('ask', {}, async (_, context) => {
        const name = acceptedContent(context.mcpReq.inputResponses, 'who')?.name;
        if (name !== undefined) return said(`hello ${name}`);
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
        return inputRequired({ inputRequests: { who: inputRequired.elicit({ message: 'Who?', requestedSchema }) } });
    });
    tool('think', {}, async (_, context) => {
        const view = inputResponse(context.mcpReq.inputResponses, 'what');
        if (view.kind === 'sampling') return said(view.result.content.text);
        const messages = [{ role: 'user', content: { type: 'text', text: 'What?' } }];
        return inputRequired({ inputRequests: { what: inputRequired.createMessage({ messages, maxTokens: 10 }) } });
    });
    tool('look', {}, async (_, context) => {
        const view = inputResponse(context.mcpReq.inputResponses, 'where');
        if (view.kind === 'roots') return said(view.roots.map(root => root.uri).join(' '));
        return inputRequired({ inputRequests: { where: inputRequired.listRoots() } });
    });
    tool('touch', {}, async () => {
        if (notifier) {
            notifier.resourceUpdated('stage://note');
            notifier.toolsChanged();
        } else {
            await server.server.sendResourceUpdated({ uri: 'stage://note' });
            server.sendToolListChanged();
        }
        return said('touched');
    });
    server.registerResource('note', 'stage://note', {}, async uri => ({
        contents: [{ uri: uri.href, text: 'remember the milk' }],
    }));
    server.registerPrompt('invite', { argsSchema: z.object({ guest: z.string() }) }, async ({ guest }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Dear ${guest}` } }],
    }));
    return server;
}

if (way === 'stdio') {
    serveStdio(stage);
} else {
    const handler = createMcpHandler(stage);
    notifier = handler.notify;
    createServer(toNodeHandler(handler)).listen(Number(port), '127.0.0.1');
}
