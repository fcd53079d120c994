// What all scenarios of rhea share: waiting for its events as promises, messages as they came, words to and from
// the test.
//
// Rules of this file: it judges nothing. Waiting ends with the test's own limit.
'use strict';

const rhea = require('rhea');
const { once } = require('node:events');
const readline = require('node:readline');

const decode = rhea.message.decode;
rhea.message.decode = (buffer) => {
    const message = decode(buffer);
    Object.defineProperty(message, 'raw', { value: Buffer.from(buffer) });
    return message;
};

const say = (event, fields) => process.stdout.write(JSON.stringify({ event, ...fields }) + '\n');
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const heard = async () => (await lines.next()).value;

// What a node may not touch: all but header, delivery-annotations and message-annotations.
function bare(buffer) {
    let at = 0;
    while (at < buffer.length) {
        const reader = new rhea.types.Reader(buffer.subarray(at));
        const section = reader.read();
        if (![0x70, 0x71, 0x72].includes(Number(section.descriptor.value))) break;
        at += reader.position;
    }
    return buffer.subarray(at);
}

async function connect(options, more = {}) {
    const container = rhea.create_container();
    const connection = container.connect({
        host: '127.0.0.1', port: options.port, reconnect: false, ...options.connect, ...more,
    });
    await once(connection, 'connection_open');
    return connection;
}

async function open_sender(connection, attach) {
    const sender = connection.open_sender(attach);
    if (!sender.credit) await once(sender, 'sendable');
    return sender;
}

async function open_receiver(connection, attach) {
    const given = typeof attach === 'string' ? { source: attach } : attach;
    const receiver = connection.open_receiver({ credit_window: 0, autoaccept: false, ...given });
    receiver.arrived = [];
    receiver.on('message', (context) => {
        receiver.arrived.push(context);
        receiver.emit('came');
    });
    await once(receiver, 'receiver_open');
    return receiver;
}

async function take(receiver, count = 1) {
    while (receiver.arrived.length < count) await once(receiver, 'came');
    return receiver.arrived.splice(0, count);
}

async function one(receiver) {
    receiver.add_credit(1);
    return (await take(receiver))[0];
}

async function send(sender, message, format) {
    const settled = new Promise((resolve) => {
        const listener = (context) => {
            if (context.delivery === delivery) {
                sender.removeListener('settled', listener);
                resolve(delivery);
            }
        };
        sender.on('settled', listener);
    });
    const delivery = sender.send(message, undefined, format);
    return settled;
}

async function send_bodies(connection, address, bodies) {
    const sender = await open_sender(connection, address);
    for (const body of bodies) await send(sender, { body });
    await shut(sender);
}

async function drain(receiver) {
    receiver.drain_credit();
    await once(receiver, 'receiver_drained');
    receiver.drain = false;
    return receiver.arrived.splice(0);
}

async function shut(endpoint) {
    const kind = endpoint.is_sender ? (endpoint.is_sender() ? 'sender_close' : 'receiver_close') : 'connection_close';
    const closed = once(endpoint, kind);
    endpoint.close();
    await closed;
}

// Everything that this connection sent before has been worked through, and answered.
async function barrier(connection, address) {
    await send_bodies(connection, `${address}-barrier`, ['here']);
    const receiver = await open_receiver(connection, `${address}-barrier`);
    (await one(receiver)).delivery.accept();
    await shut(receiver);
}

const count_of = (message) => message.delivery_count || 0;
const outcome = (delivery) => delivery.remote_state && delivery.remote_state.constructor.composite_type;
const bodies_of = (contexts) => contexts.map((context) => context.message.body);

module.exports = {
    rhea, once, say, heard, lines, bare, connect, open_sender, open_receiver, take, one, send, send_bodies, drain, shut,
    barrier, count_of, outcome, bodies_of,
};
