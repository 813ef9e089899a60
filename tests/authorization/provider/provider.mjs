// A certified OpenID provider (npm: oidc-provider) for tests. Whoever comes is logged in as "ada", and consents.
//
// Usage: node provider.mjs NODE_MODULES. Prints its issuer as a line of JSON when it listens, and ends with its standard input.

import http from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(pathToFileURL(`${process.argv[2]}/`));
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const SCOPES = ['mcp:use', 'files:write'];
const server = http.createServer();
await new Promise(done => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
    clients: [
        {
            client_id: 'callboard', client_secret: 'a secret of thirty-two characters', redirect_uris: [],
            response_types: [], grant_types: ['client_credentials'], token_endpoint_auth_method: 'client_secret_basic',
        },
    ],
    cookies: { keys: ['only for tests'] },
    scopes: ['openid', 'offline_access', ...SCOPES],
    clientDefaults: { token_endpoint_auth_method: 'none', grant_types: ['authorization_code', 'refresh_token'] },
    features: {
        devInteractions: { enabled: false },
        registration: { enabled: true },
        introspection: { enabled: true, allowedPolicy: () => true },
        revocation: { enabled: true },
        clientCredentials: { enabled: true },
        dPoP: { enabled: true },
        resourceIndicators: {
            enabled: true,
            defaultResource: () => 'http://nowhere.example',
            useGrantedResource: () => true,
            getResourceServerInfo: (_, resource) => ({
                scope: SCOPES.join(' '), audience: resource, accessTokenFormat: 'jwt', accessTokenTTL: 3600,
                jwt: { sign: { alg: 'RS256' } },
            }),
        },
    },
    extraTokenClaims: () => ({ org: 'acme', groups: ['staff'] }),
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    pkce: { required: () => true },
    ttl: { Interaction: 600, Session: 600, Grant: 600, AccessToken: 3600, IdToken: 600 },
});

async function interact(request, response) {
    const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
    if (prompt.name === 'login') {
        await provider.interactionFinished(request, response, { login: { accountId: 'ada' } });
        return;
    }
    const grant = (grantId && (await provider.Grant.find(grantId))) ||
        new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    const { missingOIDCScope, missingResourceScopes } = prompt.details;
    if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
    for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {})) {
        grant.addResourceScope(resource, scopes.join(' '));
    }
    const consent = { grantId: await grant.save() };
    await provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

const answer = provider.callback();

// Clients register with the scopes of the first challenge, and this provider would never grant them more.
async function register(request, response) {
    const pieces = await request.toArray();
    const { scope, ...rest } = JSON.parse(Buffer.concat(pieces));
    request.body = rest;
    answer(request, response);
}

server.on('request', (request, response) => {
    const fail = error => response.writeHead(500).end(String(error));
    if (request.url.startsWith('/interaction/')) interact(request, response).catch(fail);
    else if (request.url === '/reg' && request.method === 'POST') register(request, response).catch(fail);
    else answer(request, response);
});
process.stdin.on('end', () => process.exit(0)).resume();
console.log(JSON.stringify({ issuer }));
