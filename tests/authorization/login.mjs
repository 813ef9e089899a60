// The official TypeScript clients (npm: @modelcontextprotocol/client, .../sdk) log in at a guarded server.
//
// Usage, in the folder of their packages: node login.mjs URL two|one modern|legacy. Prints what it heard as JSON.

import { createRequire } from 'node:module';

const load = createRequire(`${process.cwd()}/login.mjs`);
const REDIRECT = 'http://127.0.0.1:9/callback';
const [url, library, era] = process.argv.slice(2);

/** Follow the pages of a login to its end. */
async function logIn(page) {
    const cookies = new Map();
    for (let pages = 0; pages < 20; pages += 1) {
        if (String(page).startsWith(REDIRECT)) return new URL(page);
        const cookie = [...cookies].map(pair => pair.join('=')).join('; ');
        const answer = await fetch(page, { redirect: 'manual', headers: cookie ? { cookie } : {} });
        for (const said of answer.headers.getSetCookie()) {
            const [name, value] = said.split(';')[0].split(/=(.*)/s);
            cookies.set(name, value);
        }
        if (![302, 303].includes(answer.status)) throw new Error(`${answer.status} ${await answer.text()}`);
        page = new URL(answer.headers.get('location'), page);
    }
    throw new Error('the login has no end');
}

const scopes = [];
let tokens, registered, verifier, found;
const provider = {
    get redirectUrl() { return REDIRECT; },
    get clientMetadata() {
        return { client_name: 'login', redirect_uris: [REDIRECT], token_endpoint_auth_method: 'none' };
    },
    clientInformation: () => registered,
    saveClientInformation: saved => { registered = saved; },
    tokens: () => tokens,
    saveTokens: saved => { tokens = saved; },
    saveCodeVerifier: saved => { verifier = saved; },
    codeVerifier: () => verifier,
    redirectToAuthorization: async page => {
        scopes.push(new URL(page).searchParams.get('scope') ?? '');
        found = await logIn(page);
    },
};

const two = library === 'two';
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = two
    ? load('@modelcontextprotocol/client')
    : {
          ...load('@modelcontextprotocol/sdk/client/index.js'),
          ...load('@modelcontextprotocol/sdk/client/streamableHttp.js'),
          ...load('@modelcontextprotocol/sdk/client/auth.js'),
      };

/** Do something; if the client had to log in for it, finish the login and do it again. */
async function loggedIn(transport, work) {
    try {
        return await work(transport());
    } catch (error) {
        if (!(error instanceof UnauthorizedError) && error?.name !== 'UnauthorizedError') throw error;
        const code = found.searchParams.get('code');
        await last.finishAuth(two ? found.searchParams : code);
        return work(transport());
    }
}

let last;
const transport = () => (last = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider }));
const options = two ? { versionNegotiation: { mode: era === 'modern' ? 'auto' : 'legacy' } } : {};
const begin = async way => {
    const client = new Client({ name: 'login', version: '1' }, options);
    await client.connect(way);
    return client;
};

let client = await loggedIn(transport, begin);
const revision = two ? client.getNegotiatedProtocolVersion() : last.protocolVersion;
const tools = (await client.listTools()).tools.map(tool => tool.name);
const text = result => result.content[0].text;
const who = text(await client.callTool({ name: 'who', arguments: {} }));
const write = await client.callTool({ name: 'write', arguments: {} }).then(text, async error => {
    if (error?.name !== 'UnauthorizedError' && !(error instanceof UnauthorizedError)) throw error;
    await last.finishAuth(two ? found.searchParams : found.searchParams.get('code'));
    await client.close(); // its stream would keep this process going
    client = await begin(transport());
    return text(await client.callTool({ name: 'write', arguments: {} }));
});
await client.close();
console.log(JSON.stringify({ revision, tools, who, write, scopes }));
