// The tools of hosting.py in JavaScript, for both of the official libraries, and where these are found.

import { createRequire } from 'node:module';

// The packages are installed elsewhere: where this process runs.
export const load = createRequire(`${process.cwd()}/hosting.mjs`);

const { z } = load('zod');
const text = words => ({ content: [{ type: 'text', text: words }] });

/** Offer the tools. `report` says progress once, as the library at hand does it. */
export function register(server, report, schema) {
    const none = schema(z, {});
    const words = schema(z, { text: z.string() });
    server.registerTool('noop', { description: 'Do nothing.', inputSchema: none }, async () => text('ok'));
    server.registerTool('echo', { description: 'Say it again.', inputSchema: words }, async args => text(args.text));
    const progress = 'Report progress once, so that the answer is a stream.';
    server.registerTool('noop_streamed', { description: progress, inputSchema: none }, async (_, context) => {
        await report(context);
        return text('ok');
    });
    server.registerTool('echo_streamed', { description: progress, inputSchema: words }, async (args, context) => {
        await report(context);
        return text(args.text);
    });
    return server;
}

/** The notification that says so. */
export const progress = progressToken => ({
    method: 'notifications/progress',
    params: { progressToken, progress: 1 },
});
