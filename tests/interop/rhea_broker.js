// Scenarios of rhea about what a broker does with messages: selectors, topics, subscriptions, delays, requests.
//
// Rules of this file: those of rhea_peer.js.
'use strict';

const {
    rhea, once, connect, open_sender, open_receiver, take, one, send, send_bodies, drain, shut, barrier, bodies_of,
} = require('./rhea_client.js');
const { filter } = rhea;

async function bodies_there(receiver) {
    receiver.add_credit(100);
    const found = await drain(receiver);
    for (const { delivery } of found) delivery.accept();
    return bodies_of(found);
}

module.exports = {
    // A consumer and a browser by selectors, a selector that is malformed, and what is left to others.
    async selectors(options) {
        const connection = await connect(options);
        const { address } = options;
        const sender = await open_sender(connection, address);
        for (const [body, delay] of [['late', 45], ['early', -5], ['later', 90]]) {
            await send(sender, { body, subject: 'flight', application_properties: { delay } });
        }
        const selected = (text) => ({ address, filter: filter.selector(text) });
        const browser = await open_receiver(connection, {
            source: { ...selected('delay < 0'), distribution_mode: 'copy' },
        });
        const browsed = await bodies_there(browser);
        const consumer = await open_receiver(connection, { source: selected("JMSType = 'flight' AND delay > 30") });
        const taken = await bodies_there(consumer);
        await barrier(connection, address);
        const malformed = connection.open_receiver({ source: selected('delay >') });
        const context = await Promise.race([once(malformed, 'receiver_error'), once(malformed, 'receiver_close')]);
        const { condition, description } = context[0].receiver.error;
        await shut(consumer);
        const rest = await bodies_there(await open_receiver(connection, address));
        await shut(connection);
        return { browsed, taken, rest, condition, description, echoed: Object.keys(browser.source.filter || {}) };
    },

    // Subscriptions of one topic: by a pattern, by a selector, durable over a detach, and one that two links share.
    async topics(options) {
        const connection = await connect(options);
        const topic = `topic/${options.address}`;
        const durable = { durable: 2, expiry_policy: 'never' };
        const late = { name: `${options.address}-late`, source: { address: `${topic}/late.#`, ...durable } };
        const shared = (name) => ({
            name, source: { address: topic, capabilities: ['shared'], ...durable },
        });
        const by_pattern = await open_receiver(connection, `${topic}/*.jfk`);
        const by_selector = await open_receiver(connection, {
            source: { address: topic, filter: filter.selector("gate IN ('A', 'B')") },
        });
        const stored = await open_receiver(connection, late);
        await shut(stored);
        const one_of_two = await open_receiver(connection, shared(`${options.address}-team|1`));
        const other = await open_receiver(connection, shared(`${options.address}-team|2`));
        const sender = await open_sender(connection, topic);
        for (const [subject, gate] of [['late.jfk', 'A'], ['early.jfk', 'C'], ['late.ewr', 'B'], ['late', 'C']]) {
            await send(sender, { body: subject, subject, application_properties: { gate } });
        }
        const found = {
            by_pattern: await bodies_there(by_pattern),
            by_selector: await bodies_there(by_selector),
            stored: await bodies_there(await open_receiver(connection, late)),
        };
        one_of_two.add_credit(2);
        const first = await take(one_of_two, 2);
        for (const { delivery } of first) delivery.accept();
        found.shared = [...bodies_of(first), ...await bodies_there(other)];
        await shut(connection);
        return found;
    },

    // What is delayed comes when it is due, after what was sent later.
    async delayed(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, options.address);
        const began = Date.now();
        await send(sender, { body: 'due', message_annotations: { 'x-opt-delivery-delay': options.delay_ms } });
        await send(sender, { body: 'at once' });
        const receiver = await open_receiver(connection, options.address);
        receiver.add_credit(2);
        const found = await take(receiver, 2);
        await shut(connection);
        return { bodies: bodies_of(found), waited_ms: Date.now() - began };
    },

    // A request whose answer comes to an address that the node made.
    async dynamic_reply(options) {
        const connection = await connect(options);
        const answers = await open_receiver(connection, { source: { dynamic: true } });
        const reply_to = answers.source.address;
        const sender = await open_sender(connection, options.address);
        await send(sender, { body: 'question', reply_to, correlation_id: 'c-1' });
        const asked = await one(await open_receiver(connection, options.address));
        asked.delivery.accept();
        const service = await open_sender(connection, {});
        await send(service, { to: asked.message.reply_to, body: 'answer', correlation_id: asked.message.correlation_id });
        const answer = (await one(answers)).message;
        await shut(answers);
        const gone = connection.open_sender(reply_to);
        const [context] = await Promise.race([once(gone, 'sender_error'), once(gone, 'sender_close')]);
        await send_bodies(connection, options.address, ['after']);
        await shut(connection);
        return { body: answer.body, correlation_id: answer.correlation_id, gone: context.sender.error.condition };
    },
};
