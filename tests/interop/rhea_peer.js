// Scenarios of rhea, the JavaScript AMQP client, against a node. `node rhea_peer.js SCENARIO JSON`.
//
// Rules of this file: it says JSON objects, a line each, with the key `event`; it judges nothing but what only it can
// see (its own bytes); rhea_peer.py starts it, the tests assert. Waiting ends with the test's own limit.
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

const t = rhea.types;
const VALUES = {
    'null': null, 'true': true, 'false': false, 'ubyte': t.wrap_ubyte(255), 'ushort': t.wrap_ushort(65535),
    'uint': t.wrap_uint(4294967295), 'uint-0': t.wrap_uint(0), 'ulong': t.wrap_ulong(200), 'ulong-0': t.wrap_ulong(0),
    'ulong-large': t.wrap_ulong(Buffer.from('ffffffffffffffff', 'hex')), 'byte': t.wrap_byte(-128),
    'short': t.wrap_short(-32768), 'int': t.wrap_int(-70000), 'long': t.wrap_long(-1),
    'long-large': t.wrap_long(Buffer.from('8000000000000000', 'hex')), 'float': t.wrap_float(0.5),
    'double': t.wrap_double(0.1), 'timestamp': t.wrap_timestamp(1767225600000), 'string': 'é'.repeat(200),
    'string-empty': '', 'symbol': t.wrap_symbol('holdfast:symbol'), 'binary': t.wrap_binary(Buffer.alloc(300, 7)),
    'uuid': t.wrap_uuid(Buffer.alloc(16, 5)), 'list': [1, 'two', [true, null]], 'map': { a: 1, b: { c: 'd' } },
    'array': t.wrap_array([1, 2, 3], 0x71),
};

const scenarios = {
    // All messages through one queue, compared byte for byte.
    async bodies(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, options.address);
        const receiver = await open_receiver(connection, options.address);
        const messages = {};
        for (const [name, body] of Object.entries(VALUES)) messages[`value-${name}`] = { body };
        const section = rhea.message;
        for (const size of options.sizes) {
            messages[`data-${size}`] = { body: section.data_section(Buffer.alloc(size, 'abc')) };
            messages[`text-${size}`] = { body: 'x'.repeat(size) };
        }
        messages['several-data'] = { body: section.data_sections([Buffer.from('a'), Buffer.from(''), Buffer.from('c')]) };
        messages.sequence = { body: section.sequence_section([1, 'two', null]) };
        messages['several-sequences'] = { body: section.sequence_sections([[1], [], ['three']]) };
        const ids = { ulong: t.wrap_ulong(5), uuid: t.wrap_uuid(Buffer.alloc(16, 9)), binary: Buffer.from([5]), string: '5' };
        for (const [name, id] of Object.entries(ids)) {
            messages[`id-${name}`] = { message_id: id, correlation_id: id, body: 'x' };
        }
        messages.full = {
            durable: true, priority: 7, message_id: 'm', user_id: Buffer.from('me'), to: 'there', subject: 's',
            reply_to: 'back', content_type: 'text/plain', group_id: 'g', group_sequence: 3, creation_time: new Date(0),
            application_properties: { text: 'a', number: t.wrap_int(1), flag: true, none: null },
            message_annotations: { 'x-opt-jms-msg-type': t.wrap_byte(5), 'x-opt-jms-dest': t.wrap_byte(0) },
            footer: { crc: t.wrap_ulong(1) }, body: 'x',
        };
        const wrong = [];
        for (const [name, message] of Object.entries(messages)) {
            const sent = rhea.message.encode(message);
            const delivery = await send(sender, sent, 0);
            const came = await one(receiver);
            came.delivery.accept();
            if (outcome(delivery) !== 'accepted') wrong.push([name, 'outcome', outcome(delivery)]);
            if (!bare(came.message.raw).equals(bare(sent))) wrong.push([name, 'bytes', came.message.raw.length]);
            if (Boolean(came.message.durable) !== Boolean(message.durable)) wrong.push([name, 'durable']);
            if ((came.message.priority ?? 4) !== (message.priority ?? 4)) wrong.push([name, 'priority']);
            if (name === 'full') {
                const raw = came.message.raw.toString('latin1');
                if (!raw.includes('x-opt-jms-msg-type\x51\x05')) wrong.push([name, 'x-opt-jms-msg-type is no byte']);
                if (!raw.includes('x-opt-jms-dest\x51\x00')) wrong.push([name, 'x-opt-jms-dest is no byte']);
            }
        }
        await shut(connection);
        return { wrong, messages: Object.keys(messages).length };
    },

    async message_format(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, options.address);
        const payload = rhea.message.encode({ body: 'formatted' });
        await send(sender, payload, 0x12345600);
        const came = await one(await open_receiver(connection, options.address));
        await shut(connection);
        return { format: came.format, same: bare(came.message).equals(bare(payload)) };
    },

    // Messages that another client is to read, or has sent.
    async send(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, options.address);
        for (const body of options.bodies) await send(sender, { body, application_properties: { from: 'rhea' } });
        await shut(connection);
        return {};
    },

    async receive(options) {
        const connection = await connect(options);
        const receiver = await open_receiver(connection, options.address);
        receiver.add_credit(options.count);
        const found = await take(receiver, options.count);
        found.forEach((context) => context.delivery.accept());
        await shut(connection);
        return {
            messages: found.map(({ message }) => ({
                body: message.body, id: message.message_id, subject: message.subject,
                properties: message.application_properties, annotations: Object.keys(message.message_annotations),
            })),
        };
    },

    async burst(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, {
            target: options.address, snd_settle_mode: options.settled ? 1 : 0,
        });
        let sent = 0;
        let settled = 0;
        const more = () => {
            while (sender.sendable() && sent < options.count) sender.send({ body: sent++ });
        };
        const done = new Promise((resolve) => sender.on('accepted', () => { if (++settled === options.count) resolve(); }));
        sender.on('sendable', more);
        more();
        if (!options.settled) await done;
        const receiver = connection.open_receiver({ source: options.address, credit_window: options.window });
        const found = [];
        await new Promise((resolve) => receiver.on('message', (context) => {
            found.push(context.message.body);
            if (found.length === options.count) resolve();
        }));
        await barrier(connection, options.address);
        await shut(receiver);
        const rest = await drain(await open_receiver(connection, options.address));
        await shut(connection);
        return { in_order: found.every((body, index) => body === index), rest: rest.length };
    },

    async outcomes(options) {
        const connection = await connect(options);
        const { address } = options;
        await send_bodies(connection, address, ['accepted', 'rejected', 'released', 'failed', 'not-here', 'annotated']);
        const receiver = await open_receiver(connection, address);
        (await one(receiver)).delivery.accept();
        (await one(receiver)).delivery.reject({ condition: 'example:poison', description: `no ${address}` });
        const seen = [];
        const again = async (settle) => {
            const first = await one(receiver);
            settle(first.delivery);
            const second = await one(receiver);
            const { message } = second;
            seen.push([first.message.body, message.body, count_of(first.message), count_of(message),
                Boolean(message.first_acquirer)]);
            return second;
        };
        (await again((delivery) => delivery.release())).delivery.accept();
        (await again((delivery) => delivery.modified({ delivery_failed: true }))).delivery.accept();
        // Undeliverable here: the next is what comes, and the other link has it.
        const next = await again((delivery) => delivery.modified({ undeliverable_here: true, delivery_failed: true }));
        next.delivery.modified({ message_annotations: { 'x-opt-why': 'because' } });
        const annotated = await one(receiver);
        annotated.delivery.accept();
        const rest = await drain(receiver);
        const other = await one(await open_receiver(connection, address));
        await barrier(connection, address);
        const dead = await open_receiver(connection, { source: { address: '$dead-letters', distribution_mode: 'copy' } });
        dead.add_credit(1000);
        const letters = await drain(dead);
        await shut(connection);
        return {
            seen, rest: rest.length, annotated: annotated.message.message_annotations['x-opt-why'],
            other: [other.message.body, count_of(other.message)],
            reasons: letters.map((context) => context.message.message_annotations['x-opt-dead-letter-reason'])
                .filter((reason) => reason.includes(`no ${address}`)),
        };
    },

    async credit(options) {
        const connection = await connect(options);
        const { address } = options;
        await send_bodies(connection, address, [...Array(30).keys()]);
        const receiver = await open_receiver(connection, address);
        const seen = [];
        await barrier(connection, address);
        seen.push(receiver.arrived.length);
        for (const credit of [1, 10, 3]) {
            receiver.add_credit(credit);
            await take(receiver, credit);
            await barrier(connection, address);
            seen.push(receiver.arrived.length);
        }
        receiver.add_credit(1000);
        const rest = bodies_of(await drain(receiver));
        const credit = receiver.credit;
        await send_bodies(connection, address, ['later']);
        await barrier(connection, address);
        seen.push(receiver.arrived.length);
        const later = await one(receiver);
        await shut(connection);
        return { seen, rest, credit, later: later.message.body };
    },

    async browse(options) {
        const connection = await connect(options);
        const { address } = options;
        const source = { address, distribution_mode: 'copy' };
        const empty = await open_receiver(connection, { source });
        empty.add_credit(10);
        const nothing = await drain(empty);
        await shut(empty);
        await send_bodies(connection, address, [0, 1, 2]);
        const twice = [];
        let echoed;
        for (let round = 0; round < 2; round++) {
            const browser = await open_receiver(connection, { source });
            echoed = browser.source.distribution_mode;
            browser.add_credit(10);
            const found = await drain(browser);
            found.forEach((context) => context.delivery.accept());
            twice.push(bodies_of(found));
            await shut(browser);
        }
        const taker = await open_receiver(connection, address);
        taker.add_credit(10);
        const taken = bodies_of(await drain(taker));
        await shut(connection);
        return { nothing: nothing.length, twice, taken, echoed };
    },

    async modes(options) {
        const connection = await connect(options);
        const { address } = options;
        const seen = [];
        for (const snd_settle_mode of [0, 1, 2]) {
            for (const rcv_settle_mode of [0, 1]) {
                const modes = { snd_settle_mode, rcv_settle_mode };
                const sender = await open_sender(connection, { target: address, ...modes });
                sender.send({ body: 'x' });
                const receiver = await open_receiver(connection, { source: address, ...modes, autosettle: false });
                const came = await one(receiver);
                let answered = null;
                if (rcv_settle_mode === 1 && !came.delivery.remote_settled) {
                    const settled = once(receiver, 'settled');
                    came.delivery.accept();
                    await settled;
                    answered = came.delivery.remote_settled;
                    came.delivery.update(true);
                } else if (!came.delivery.remote_settled) {
                    came.delivery.accept();
                }
                seen.push([snd_settle_mode, rcv_settle_mode, sender.snd_settle_mode, sender.rcv_settle_mode,
                    receiver.snd_settle_mode, receiver.rcv_settle_mode, answered]);
                await barrier(connection, address);
                await shut(sender);
                await shut(receiver);
            }
        }
        const rest = await open_receiver(connection, address);
        rest.add_credit(10);
        const left = (await drain(rest)).length;
        await shut(connection);
        return { seen, left };
    },

    // Takes, settles none, and says so; the test cuts the line.
    async hold(options) {
        const connection = await connect(options);
        const receiver = await open_receiver(connection, options.address);
        receiver.add_credit(options.count);
        const found = await take(receiver, options.count);
        say('holds', { bodies: bodies_of(found) });
        await once(connection, 'disconnected');
        return {};
    },

    async idle(options) {
        const connection = await connect(options, { idle_time_out: options.idle_ms });
        connection.on('disconnected', (context) => say('disconnected', { why: String(context.error) }));
        say('open', { node_idle_ms: connection.idle_time_out || 0 });
        await heard();
        await send_bodies(connection, options.address, ['alive']);
        await shut(connection);
        return {};
    },

    async frames(options) {
        const connection = await connect(options, { max_frame_size: options.frame_bytes });
        connection.remote.open.max_frame_size = options.frame_bytes; // what rhea cuts its own messages by
        const sender = await open_sender(connection, options.address);
        const receiver = await open_receiver(connection, options.address);
        const same = [];
        for (const size of [0, 400, 512, 5000, 200000]) {
            const sent = rhea.message.encode({ body: rhea.message.data_section(Buffer.alloc(size, 'abc')) });
            await send(sender, sent, 0);
            const came = await one(receiver);
            same.push(bare(came.message.raw).equals(bare(sent)));
        }
        await shut(connection);
        return { same };
    },

    async login(options) {
        const container = rhea.create_container();
        const connection = container.connect({ host: '127.0.0.1', port: options.port, reconnect: false, ...options.connect });
        const result = await new Promise((resolve) => {
            connection.on('connection_open', () => resolve({ open: true }));
            connection.on('connection_error', () => {});
            connection.on('protocol_error', (error) => resolve({ open: false, why: error.message }));
            connection.on('error', (error) => resolve({ open: false, why: error.condition || error.message }));
            connection.on('disconnected', (context) => resolve({ open: false, why: String(context.error) }));
        });
        if (result.open) {
            await send_bodies(connection, 'login', ['x']);
            await shut(connection);
        }
        return result;
    },

    async refused(options) {
        const connection = await connect(options);
        const told = [];
        for (const [open, kind] of [['open_sender', 'sender'], ['open_receiver', 'receiver']]) {
            const link = connection[open]('unknown');
            link.on(`${kind}_error`, () => {});
            await once(link, `${kind}_close`);
            const terminus = kind === 'sender' ? link.target : link.source;
            told.push([link.error.condition, link.error.description, Boolean(terminus && terminus.address)]);
        }
        await send_bodies(connection, 'known', ['x']);
        const came = await one(await open_receiver(connection, 'known'));
        came.delivery.accept();
        await shut(connection);
        return { told, body: came.message.body };
    },

    async links(options) {
        const connection = await connect(options);
        const { address } = options;
        const twin_sender = await open_sender(connection, { name: 'twin', target: address });
        // rhea keeps its links by name in a session: the other direction of the name takes another session.
        const session = connection.create_session();
        session.begin();
        const twin_receiver = await open_receiver(session, { name: 'twin', source: address });
        await send(twin_sender, { body: 'twin' });
        const twin = await one(twin_receiver);
        twin.delivery.accept();
        await shut(twin_sender);
        await shut(twin_receiver);
        const again = [];
        for (let round = 0; round < 5; round++) {
            const sender = await open_sender(connection, { name: 'again', target: address });
            await send(sender, { body: round });
            await shut(sender);
            const receiver = await open_receiver(connection, { name: 'again', source: address });
            const came = await one(receiver);
            came.delivery.accept();
            again.push(came.message.body);
            await shut(receiver);
        }
        // Detached with closed=false, attached again.
        await send_bodies(connection, address, ['first', 'second']);
        const leaving = await open_receiver(connection, { name: 'leaves', source: address });
        (await one(leaving)).delivery.accept();
        await barrier(connection, address);
        const left = once(leaving, 'receiver_close');
        leaving.detach();
        await left;
        const closed = leaving.remote.detach.closed;
        leaving.remove();
        const back = await open_receiver(connection, { name: 'leaves', source: address });
        const second = await one(back);
        second.delivery.accept();
        await barrier(connection, address);
        await shut(connection);
        return { twin: twin.message.body, again, closed: Boolean(closed), second: second.message.body };
    },

    async subscription(options) {
        const connection = await connect(options);
        const { address } = options;
        const attach = { name: `${address}-sub`, source: { address, durable: 2, expiry_policy: 'never' } };
        await send_bodies(connection, address, ['before']);
        const first = await open_receiver(connection, attach);
        await send_bodies(connection, address, ['one', 'two']);
        (await one(first)).delivery.accept();
        await barrier(connection, address);
        await shut(first);
        await send_bodies(connection, address, ['three']);
        const later = await open_receiver(connection, attach);
        later.add_credit(10);
        const found = bodies_of(await drain(later));
        await shut(connection);
        return { found };
    },

    async reconnect(options) {
        const connection = await connect(options, {
            reconnect: true, initial_reconnect_delay: 20, max_reconnect_delay: 100,
        });
        connection.on('disconnected', () => {});
        connection.on('connection_error', () => {});
        connection.on('connection_close', () => {});
        const sender = connection.open_sender(options.address);
        const receiver = connection.open_receiver({ source: options.address, credit_window: 20 });
        const confirmed = new Set();
        const received = new Set();
        const under_way = new Map();
        let limit = options.count / 2;
        let next = 0;
        let redo = [];
        const pump = () => {
            while (sender.sendable() && (redo.length || next < limit)) {
                const number = redo.length ? redo.shift() : next++;
                under_way.set(sender.send({ body: number, durable: true }), number);
            }
        };
        const check = () => connection.emit('progress');
        sender.on('sendable', pump);
        sender.on('accepted', (context) => {
            confirmed.add(under_way.get(context.delivery));
            under_way.delete(context.delivery);
            check();
        });
        receiver.on('message', (context) => {
            received.add(context.message.body);
            check();
        });
        let opens = 1;
        connection.on('connection_open', () => {
            opens++;
            redo = redo.concat([...under_way.values()]);
            under_way.clear();
        });
        while (confirmed.size < limit) await once(connection, 'progress');
        say('half', {});
        await heard();
        limit = options.count;
        pump();
        while (confirmed.size < limit || received.size < limit) await once(connection, 'progress');
        connection.set_reconnect(false);
        await shut(connection);
        return { opens, confirmed: confirmed.size, received: received.size };
    },
};

const [name, text] = process.argv.slice(2);
scenarios[name](JSON.parse(text)).then((result) => {
    say('done', result);
    lines.return();
    process.exitCode = 0;
    process.stdin.destroy();
});
