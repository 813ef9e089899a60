// What a client in Node.js does at callboard's stage, whatever its library; it says in JSON lines what it heard.
// The same steps as in ../tour.py.

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

// The packages are installed elsewhere: where this process runs.
export const load = createRequire(`${process.cwd()}/tour.mjs`);

// Milliseconds for one step. A step that hangs must not take the others with it.
const STEP_TIME = 10_000;
// And for all steps over one wire, from connecting to closing.
const WIRE_TIME = 30_000;

const ANSWERS = { username: 'ada', email: 'ada@example.org', name: 'Ada', colour: 'green' };

export const CAPABILITIES = { elicitation: {}, sampling: {}, roots: {} };

/** How the server's questions are answered, by method; each is kept in `asked`. */
export function answers(asked) {
    return {
        'elicitation/create': ({ params }) => {
            asked.push(params.message);
            const names = Object.keys(params.requestedSchema.properties);
            return { action: 'accept', content: Object.fromEntries(names.map(name => [name, ANSWERS[name]])) };
        },
        'sampling/createMessage': ({ params }) => {
            const [{ content }] = params.messages;
            asked.push((Array.isArray(content) ? content[0] : content).text);
            return { role: 'assistant', model: 'm', content: { type: 'text', text: 'Paris' } };
        },
        'roots/list': () => {
            asked.push('roots');
            return { roots: [{ uri: 'file:///home/ada' }] };
        },
    };
}

/** Changes in the order in which they come, for one who waits for them. */
class Changes {
    #come = [];
    #waiting = [];

    put(change) {
        const waiter = this.#waiting.shift();
        if (waiter) waiter(change);
        else this.#come.push(change);
    }

    next() {
        if (this.#come.length) return Promise.resolve(this.#come.shift());
        return new Promise(resolve => this.#waiting.push(resolve));
    }
}

async function text(client, name, args = {}, options = undefined) {
    const result = await client.callTool({ name, arguments: args }, options);
    return (result.isError ? 'error: ' : '') + result.content[0].text;
}

const STEPS = {
    negotiate: ({ revision }) => revision,
    list_all: async ({ client }) => ({
        tools: (await client.listTools()).tools.map(tool => tool.name).sort(),
        resources: (await client.listResources()).resources.map(resource => resource.uri).sort(),
        templates: (await client.listResourceTemplates()).resourceTemplates.map(each => each.uriTemplate).sort(),
        prompts: (await client.listPrompts()).prompts.map(prompt => prompt.name).sort(),
    }),
    call: ({ call }) => call('test_simple_text'),
    fail: ({ call }) => call('test_error_handling'),
    read: async ({ client }) => (await client.readResource({ uri: 'test://static-text' })).contents[0].text,
    prompt: async ({ client }) => {
        const asked = { name: 'test_prompt_with_arguments', arguments: { arg1: 'one', arg2: 'two' } };
        return (await client.getPrompt(asked)).messages[0].content.text;
    },
    complete: async ({ client }) => {
        const ref = { type: 'ref/prompt', name: 'test_prompt_with_arguments' };
        return (await client.complete({ ref, argument: { name: 'arg1', value: 'testi' } })).completion.values;
    },
    progress: async ({ call }) => {
        const reports = [];
        const onprogress = ({ progress, total, message }) => reports.push([progress, total, message]);
        return [await call('test_tool_with_progress', {}, { onprogress }), ...reports];
    },
    elicit: async ({ call, asked }) => [await call('test_elicitation', { message: 'Who are you?' }), ...asked],
    sample: async ({ call, asked }) => [await call('test_sampling', { prompt: 'Capital of France?' }), ...asked],
    roots: async ({ call, asked }) => [await call('test_input_required_result_list_roots'), ...asked],
    two_rounds: async ({ call, asked }) => [await call('test_input_required_result_multi_round'), ...asked],
    cancel: async ({ call }) => {
        const tag = randomUUID();
        const given = new AbortController();
        const onprogress = () => given.abort('no longer wanted');
        const left = await call('linger', { tag }, { signal: given.signal, onprogress }).catch(() => 'left');
        if (left !== 'left') throw new Error(`the call came to an end: ${left}`);
        return call('was_cancelled', { tag });
    },
    subscribe: async ({ call, watch, changes }) => {
        const tag = randomUUID();
        const end = await watch(`stage://${tag}/watched`);
        await call('touch', { tag });
        const first = await changes.next();
        await call('test_trigger_tool_change');
        const second = await changes.next();
        await end();
        return [first.replace(tag, 'TAG'), second];
    },
};

/** Tour every wire that the command line names: {"http": {"url": ...}, "stdio": {"command": [...]}, ...}. */
export async function run(connect) {
    for (const [wire, target] of Object.entries(JSON.parse(process.argv[2]))) {
        await hear(wire, 'close', WIRE_TIME, () => visit(connect, wire, target));
    }
    process.exit(); // what a failed step left open must not keep the process
}

async function visit(connect, wire, target) {
    const asked = [];
    const changes = new Changes();
    const visitor = await connect(wire, target, asked, changes);
    const call = (name, args, options) => text(visitor.client, name, args, options);
    for (const [step, take] of Object.entries(STEPS)) {
        asked.length = 0;
        await hear(wire, step, STEP_TIME, () => take({ ...visitor, asked, changes, call }));
    }
    await visitor.client.close();
    return 'closed';
}

async function hear(wire, step, milliseconds, take) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error('no end in sight')), milliseconds);
    });
    let said;
    try {
        said = { heard: await Promise.race([take(), late]) };
    } catch (error) {
        console.error(error);
        said = { error: String(error) };
    } finally {
        clearTimeout(timer);
    }
    console.log(JSON.stringify({ wire, step, ...said }));
}
