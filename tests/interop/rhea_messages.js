// Scenarios of rhea about messages: what they hold, what becomes of a delivery.
//
// Rules of this file: those of rhea_peer.js.
'use strict';

const {
    rhea, once, say, bare, connect, open_sender, open_receiver, take, one, send, send_bodies, drain, shut, barrier,
    count_of, outcome, bodies_of,
} = require('./rhea_client.js');

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

module.exports = {
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
        const plain = Object.entries(VALUES).filter(([name]) => !['list', 'map', 'array'].includes(name));
        messages.properties = { application_properties: Object.fromEntries(plain), body: 'x' };
        const notes = plain.map(([name, value]) => [`x-opt-${name}`, value]);
        messages.annotations = { message_annotations: Object.fromEntries(notes), body: 'x' };
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
            if (name === 'annotations') {
                // Its pairs, as they were encoded, among those that the node has noted itself.
                const pairs = sent.subarray(sent.indexOf('x-opt-null') - 2, sent.length - bare(sent).length);
                if (!came.message.raw.includes(pairs)) wrong.push([name, 'other pairs']);
            }
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

    // What becomes of messages that a queue has no place for, or that are too large.
    async refusals(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, 'one-alone');
        const seen = [];
        for (const body of ['first', 'second']) {
            const delivery = await send(sender, { body });
            const error = delivery.remote_state && delivery.remote_state.error;
            seen.push([outcome(delivery), error ? error.condition : null, error ? error.description : null]);
        }
        const came = await one(await open_receiver(connection, 'one-alone'));
        came.delivery.accept();
        await barrier(connection, 'known');
        seen.push(outcome(await send(sender, { body: 'third' })));
        (await one(await open_receiver(connection, 'one-alone'))).delivery.accept();
        const large = await open_sender(connection, 'known');
        const bound = large.max_message_size;
        large.on('sender_error', () => {});
        const closed = once(large, 'sender_close');
        large.send({ body: 'x'.repeat(100_001) });
        await closed;
        await barrier(connection, 'known');
        await shut(connection);
        return { seen, first: came.message.body, bound, too_large: large.error.condition };
    },

    async expiry(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, options.address);
        await send(sender, { body: 'expires', ttl: 20 });
        await send(sender, { body: 'stays', ttl: 600_000, priority: 9 });
        const receiver = await open_receiver(connection, options.address);
        let came = await one(receiver);
        while (came.message.body === 'expires') {
            came.delivery.release();
            came = await one(receiver);
        }
        const { body, ttl, priority } = came.message;
        came.delivery.accept();
        await shut(connection);
        return { body, ttl, priority };
    },
};
