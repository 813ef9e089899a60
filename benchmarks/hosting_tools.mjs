// The tools of hosting.py in JavaScript, for both of the official libraries, and where these are found.

import { createRequire } from 'node:module';

// The packages are installed elsewhere: where this process runs.
export const load = createRequire(`${process.cwd()}/hosting.mjs`);

const { z } = load('zod');
// Made once: one of the libraries wants a new server for every request.
const NOTHING = z.object({});
const TEXT = z.object({ text: z.string() });
const PROGRESS = 'Report progress once, so that the answer is a stream.';

const said = text => ({ content: [{ type: 'text', text }] });

/** Offer the two tools whose answer is all there is to say. */
export function plain(server) {
    server.registerTool('noop', { description: 'Do nothing.', inputSchema: NOTHING }, async () => said('ok'));
    server.registerTool('echo', { description: 'Say it again.', inputSchema: TEXT }, async ({ text }) => said(text));
    return server;
}

/** Offer the two that report progress first. `report` does it, in the words of the library at hand. */
export function streamed(server, report) {
    server.registerTool('noop_streamed', { description: PROGRESS, inputSchema: NOTHING }, async (_, context) => {
        await report(context);
        return said('ok');
    });
    server.registerTool('echo_streamed', { description: PROGRESS, inputSchema: TEXT }, async ({ text }, context) => {
        await report(context);
        return said(text);
    });
    return server;
}

/** The notification that says so. */
export const progress = progressToken => ({
    method: 'notifications/progress',
    params: { progressToken, progress: 1 },
});
