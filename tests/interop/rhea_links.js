// Scenarios of rhea about connections, sessions, links and credit.
//
// Rules of this file: those of rhea_peer.js.
'use strict';

const {
    rhea, once, say, heard, bare, connect, open_sender, open_receiver, take, one, send, send_bodies, drain, shut,
    barrier, outcome, bodies_of,
} = require('./rhea_client.js');
const frames = require('rhea/lib/frames.js');

module.exports = {
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

    // Sends numbers as fast as credit allows, every third message settled, and waits for the answers to the others.
    async flood(options) {
        const connection = await connect(options);
        const sender = connection.open_sender({ target: options.address, snd_settle_mode: 2 });
        let next = options.first;
        const end = options.first + options.count;
        let open = 0;
        await new Promise((resolve) => {
            const more = () => {
                while (next < end && sender.sendable()) {
                    const delivery = sender.send({ body: next });
                    if (next++ % 3) open++;
                    else delivery.update(true);
                }
                if (next === end && !open) resolve();
            };
            sender.on('accepted', () => { open--; more(); });
            sender.on('sendable', more);
        });
        await barrier(connection, options.address);
        await shut(connection);
        return {};
    },

    // Takes `count` messages, no more, in windows; says the numbers that their bodies begin with.
    async collect(options) {
        const connection = await connect(options);
        const receiver = await open_receiver(connection, { source: options.address, autoaccept: true });
        const numbers = [];
        while (numbers.length < options.count) {
            const window = Math.min(options.window, options.count - numbers.length);
            receiver.add_credit(window);
            for (const { message } of await take(receiver, window)) numbers.push(parseInt(message.body, 10));
        }
        await shut(connection);
        return { numbers };
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
        const { open } = connection.remote; // what rhea cuts its own messages by
        open.max_frame_size = Math.min(options.frame_bytes, open.max_frame_size);
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
        const told = [];
        connection.on('connection_error', (context) => told.push(context.connection.error.condition));
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
        const sequences = new Set();
        const unmarked = []; // entries that came again as if for the first time
        receiver.on('message', ({ message }) => {
            const sequence = Number(message.message_annotations['x-opt-sequence-number']);
            if (sequences.has(sequence) && message.first_acquirer) unmarked.push(sequence);
            sequences.add(sequence);
            received.add(message.body);
            check();
        });
        let opens = 1;
        connection.on('connection_open', () => {
            opens++;
            redo = redo.concat([...under_way.values()]);
            under_way.clear();
        });
        // In the midst of the first half; the second waits for the word.
        while (confirmed.size < options.count / 5) await once(connection, 'progress');
        say('under way', {});
        await heard();
        limit = options.count;
        pump();
        while (confirmed.size < limit || received.size < limit) await once(connection, 'progress');
        connection.set_reconnect(false);
        await shut(connection);
        return { opens, told, unmarked, confirmed: confirmed.size, received: received.size };
    },

    // Asks for a flow in return, of a link and of its session.
    async echo(options) {
        const connection = await connect(options);
        const receiver = await open_receiver(connection, options.address);
        receiver.add_credit(5);
        await barrier(connection, options.address);
        const { session } = receiver;
        const ask = (more) => {
            session.output(frames.flow({
                next_incoming_id: session.incoming.next_transfer_id, incoming_window: session.incoming.window,
                next_outgoing_id: session.outgoing.next_transfer_id, outgoing_window: session.outgoing.window,
                echo: true, ...more,
            }));
            connection._register();
        };
        say('asking', {});
        const answered = once(receiver, 'receiver_flow');
        ask({ handle: receiver.local.handle, delivery_count: receiver.delivery_count, link_credit: receiver.credit });
        await answered;
        ask({});
        await barrier(connection, options.address);
        await shut(connection);
        return { handle: receiver.remote.attach.handle };
    },

    async names(options) {
        const connection = await connect(options, { container_id: options.name });
        const kept = [];
        for (const address of options.addresses) {
            const sender = await open_sender(connection, { name: `${options.name}s${address}`, target: address });
            const delivery = await send(sender, { body: address, to: address });
            const receiver = await open_receiver(connection, { name: `${options.name}r${address}`, source: address });
            const { delivery: came, message } = await one(receiver);
            came.accept();
            kept.push([outcome(delivery), sender.target.address, receiver.source.address, message.body, message.to]);
            await shut(sender);
            await shut(receiver);
        }
        await shut(connection);
        return { kept };
    },

    // Fifty sessions with a sender and a receiver each; ended from the outside, one from the inside.
    async sessions(options) {
        const connection = await connect(options);
        const { address } = options;
        const opened = [];
        for (let number = 0; number < 50; number++) {
            const session = connection.create_session();
            session.begin();
            opened.push([session, session.open_sender(`${address}-${number}`)]);
        }
        for (const [number, [session, sender]] of opened.entries()) {
            if (!sender.credit) await once(sender, 'sendable');
            await send(sender, { body: number });
            const receiver = await open_receiver(session, `${address}-${number}`);
            receiver.add_credit(1);
            opened[number].push(receiver);
        }
        const bodies = [];
        for (const [, , receiver] of opened) bodies.push((await take(receiver))[0].message.body);
        // Held by a session that ends: given back, to be had through another.
        const [first, , held] = opened[0];
        const ended = once(first, 'session_close');
        first.close();
        await ended;
        const again = (await one(await open_receiver(connection, held.source.address))).message.body;
        await shut(connection);
        return { bodies, again };
    },
};
