// The official TypeScript client of both eras (npm: @modelcontextprotocol/client) on the tour.

import { answers, CAPABILITIES, load, run } from './tour.mjs';

const { Client, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');
const { StdioClientTransport } = load('@modelcontextprotocol/client/stdio');
// This library has no WebSocket any more, but takes any transport: that of its predecessor will do.
const { WebSocketClientTransport } = load('@modelcontextprotocol/sdk/client/websocket.js');

const TRANSPORTS = {
    http: ({ url }) => new StreamableHTTPClientTransport(new URL(url)),
    asgi: ({ url }) => new StreamableHTTPClientTransport(new URL(url)),
    ws: ({ url }) => new WebSocketClientTransport(new URL(url)),
    stdio: ({ command }) => new StdioClientTransport({ command: command[0], args: command.slice(1) }),
};

await run(async (wire, target, asked, changes) => {
    const [way, era] = wire.split('-');
    const modern = era === 'modern';
    const client = new Client(
        { name: 'tour', version: '1' },
        { capabilities: CAPABILITIES, versionNegotiation: { mode: modern ? 'auto' : 'legacy' } },
    );
    for (const [method, answer] of Object.entries(answers(asked))) client.setRequestHandler(method, answer);
    client.setNotificationHandler('notifications/resources/updated', ({ params }) =>
        changes.put(`updated ${params.uri}`),
    );
    client.setNotificationHandler('notifications/tools/list_changed', () => changes.put('tools changed'));

    await client.connect(TRANSPORTS[way](target));
    const watch = async uri => {
        if (modern) {
            const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
            return () => subscription.close();
        }
        await client.subscribeResource({ uri });
        return () => client.unsubscribeResource({ uri });
    };
    return { client, watch, revision: client.getNegotiatedProtocolVersion() };
});
