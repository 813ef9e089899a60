// The official TypeScript SDK of the legacy era (npm: @modelcontextprotocol/sdk) on the tour.

import { answers, CAPABILITIES, load, run } from './tour.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = load('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = load('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { WebSocketClientTransport } = load('@modelcontextprotocol/sdk/client/websocket.js');
const types = load('@modelcontextprotocol/sdk/types.js');

const TRANSPORTS = {
    http: ({ url }) => new StreamableHTTPClientTransport(new URL(url)),
    asgi: ({ url }) => new StreamableHTTPClientTransport(new URL(url)),
    sse: ({ url }) => new SSEClientTransport(new URL(url)),
    ws: ({ url }) => new WebSocketClientTransport(new URL(url)),
    stdio: ({ command }) => new StdioClientTransport({ command: command[0], args: command.slice(1) }),
};

await run(async (wire, target, asked, changes) => {
    const client = new Client({ name: 'tour', version: '1' }, { capabilities: CAPABILITIES });
    const answer = answers(asked);
    client.setRequestHandler(types.ElicitRequestSchema, answer['elicitation/create']);
    client.setRequestHandler(types.CreateMessageRequestSchema, answer['sampling/createMessage']);
    client.setRequestHandler(types.ListRootsRequestSchema, answer['roots/list']);
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) =>
        changes.put(`updated ${params.uri}`),
    );
    client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => changes.put('tools changed'));

    const transport = TRANSPORTS[wire](target);
    // This library tells its transport which revision was agreed on, and nobody else.
    let revision;
    const told = transport.setProtocolVersion?.bind(transport);
    transport.setProtocolVersion = version => {
        revision = version;
        told?.(version);
    };
    await client.connect(transport);
    const watch = async uri => {
        await client.subscribeResource({ uri });
        return () => client.unsubscribeResource({ uri });
    };
    // Between the two arguments that the newer library takes, this one takes a schema.
    const callTool = (params, options) => client.callTool(params, undefined, options);
    return { client: Object.setPrototypeOf({ callTool }, client), watch, revision };
});
