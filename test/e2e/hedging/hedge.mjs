// Creates a ticket through @grpc/grpc-js, which hedges and retries as its service config
// says, and prints what the caller gets as one line of JSON.
//
//   node hedge.mjs '{"tools": ["127.0.0.1:1"], "key": "k", "request": {…}, "policy": {…}}'
//
// "policy" is merged into the method's config: {"hedgingPolicy": …} or {"retryPolicy": …}.
// Calls go to the tools in turn, and the one that counts is made when all of them have
// answered another.
import { fileURLToPath } from 'node:url';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const patience = 60_000; // milliseconds
const root = fileURLToPath(new URL('../../../', import.meta.url));
const { tools, key, request, policy } = JSON.parse(process.argv[2]);

const { tickets } = grpc.loadPackageDefinition(
  loader.loadSync('tickets/v1/tickets.proto', {
    includeDirs: [root + 'proto', root + 'examples/tickets/proto'],
    keepCase: true,
  }),
);
const service = 'tickets.v1.Tickets';
const client = new tickets.v1.Tickets('ipv4:' + tools.join(','), grpc.credentials.createInsecure(), {
  'grpc.service_config': JSON.stringify({
    loadBalancingConfig: [{ round_robin: {} }],
    methodConfig: [{ name: [{ service, method: 'CreateTicket' }], ...policy }],
  }),
});

// call makes a call and returns all that its caller sees of it.
function call(method, request, metadata = new grpc.Metadata()) {
  return new Promise((resolve) => {
    const seen = { headers: {}, trailers: {} };
    const made = client[method](request, metadata, { deadline: Date.now() + patience }, (error, response) => {
      Object.assign(seen, { response, peer: made.getPeer() });
    });
    made.on('metadata', (m) => (seen.headers = shown(m)));
    made.on('status', ({ code, details, metadata }) => {
      resolve(Object.assign(seen, { code, message: details, trailers: shown(metadata) }));
    });
  });
}

// shown is metadata for JSON, its bytes in base64.
function shown(metadata) {
  return Object.fromEntries(
    Object.keys(metadata.getMap()).map((name) => [name, metadata.get(name).map((v) => (Buffer.isBuffer(v) ? v.toString('base64') : v))]),
  );
}

const started = Date.now();
for (const answered = new Set(); answered.size < tools.length; ) {
  const { code, message, peer } = await call('ListTickets', { project: request.project });
  if (code !== grpc.status.OK || Date.now() - started > patience) {
    throw new Error(`of ${tools} only ${[...answered]} answer: ${message}`);
  }
  answered.add(peer);
}
const metadata = new grpc.Metadata();
metadata.set('idempotency-key', key);
console.log(JSON.stringify(await call('CreateTicket', request, metadata)));
client.close();
