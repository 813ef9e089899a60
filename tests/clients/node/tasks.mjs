// Tasks of 2025-11-25 by the official TypeScript SDK (npm: @modelcontextprotocol/sdk), at examples/everything.py.
// `node tasks.mjs URL` prints what it heard as one line of JSON.

import { load } from './tour.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = load('@modelcontextprotocol/sdk/types.js');

const client = new Client({ name: 'tasks', version: '1' }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(types.ElicitRequestSchema, async ({ params }) => ({
    action: 'accept',
    content: params.message.startsWith('Delete') ? { confirm: true } : { name: params.message },
}));
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await client.listTools();

const run = async (name, args) => {
    const heard = new Set();
    for await (const message of client.experimental.tasks.callToolStream({ name, arguments: args }, undefined, { task: {} })) {
        heard.add(message.type);
        // This library does not fetch the result of a failed task.
        if (message.type === 'error') return [heard.has('taskCreated'), message.error.message.replace(/Task \S+/, 'Task')];
        if (message.type === 'result') {
            const { isError, content } = message.result;
            return [heard.has('taskCreated'), (isError ? 'error: ' : '') + content[0].text];
        }
    }
};

const begin = async () => {
    const { task } = await client.request(
        { method: 'tools/call', params: { name: 'slow_compute', arguments: { seconds: 60 }, task: {} } },
        types.CreateTaskResultSchema,
    );
    await client.experimental.tasks.cancelTask(task.taskId);
    return (await client.experimental.tasks.getTask(task.taskId)).status;
};

const calls = {
    task: run('slow_compute', { seconds: 1, label: 'x' }),
    asks: run('confirm_delete', { filename: 'x' }),
    'asks twice at once': run('multi_input', {}),
    fails: run('failing_job', {}),
    cancelled: begin(),
};
const heard = {};
for (const [name, call] of Object.entries(calls)) heard[name] = await call;
console.log(JSON.stringify(heard));
await client.close();
