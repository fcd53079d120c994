// rhea over TLS: sends a message and takes it back, by PLAIN or by its certificate (EXTERNAL). Prints what came, or why
// nothing did.
//
// Rules of this file: it judges nothing.
'use strict';

const { readFileSync } = require('node:fs');
const rhea = require('rhea');

const options = JSON.parse(process.argv[2]);
const files = {};
for (const key of ['ca', 'cert', 'key']) if (options[key]) files[key] = [readFileSync(options[key])];

const container = rhea.create_container();
const connection = container.connect({
    host: '127.0.0.1', port: options.port, transport: 'tls', servername: 'localhost', reconnect: false,
    ALPNProtocols: ['amqp'], enable_sasl_external: !options.login, ...files, ...(options.login || {}),
});
const finish = (event, fields) => {
    process.stdout.write(JSON.stringify({ event, ...fields }) + '\n');
    connection.close();
    setTimeout(() => process.exit(0), 50);
};
connection.on('connection_open', () => {
    const receiver = connection.open_receiver('over-tls');
    const sender = connection.open_sender('over-tls');
    sender.once('sendable', () => sender.send({ body: 'x'.repeat(100000) }));
    receiver.on('message', (context) => finish('message', { size: context.message.body.length }));
});
for (const event of ['connection_error', 'connection_close', 'disconnected', 'error']) {
    connection.on(event, (context) => finish(event, { error: String(context.error || connection.error || '') }));
}
