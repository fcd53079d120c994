// Scenarios of rhea with addresses that a message or the node gives: anonymous senders, dynamic nodes.
//
// Rules of this file: those of rhea_peer.js.
'use strict';

const {
    connect, open_sender, open_receiver, take, one, send, shut, barrier, outcome, say, heard, once,
} = require('./rhea_client.js');

module.exports = {
    // Answers `count` requests in capitals, each at the address that it names.
    async serve(options) {
        const connection = await connect(options);
        const receiver = await open_receiver(connection, options.address);
        const sender = await open_sender(connection, {});
        say('serves', {});
        for (let number = 0; number < options.count; number++) {
            const { message, delivery } = await one(receiver);
            const { reply_to, correlation_id } = message;
            await send(sender, { to: reply_to, correlation_id, body: message.body.toUpperCase() });
            delivery.accept();
        }
        await shut(connection);
        return {};
    },

    async request(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, options.address);
        const receiver = await open_receiver(connection, { source: { dynamic: true } });
        const reply_to = receiver.source.address;
        const answers = [];
        for (const [number, body] of options.requests.entries()) {
            await send(sender, { reply_to, correlation_id: `c${number}`, body });
            const { message, delivery } = await one(receiver);
            delivery.accept();
            answers.push([message.correlation_id, message.body]);
        }
        await shut(connection);
        return { answers };
    },

    // Several addresses over one sender, one of them bad.
    async anonymous(options) {
        const connection = await connect(options);
        const sender = await open_sender(connection, {});
        const seen = [];
        for (const to of options.addresses) {
            const delivery = await send(sender, { to, body: to });
            const error = delivery.remote_state.error;
            seen.push([outcome(delivery), error ? error.condition : null]);
        }
        const offered = [].concat(connection.remote.open.offered_capabilities || []).map(String);
        await shut(connection);
        return { seen, offered };
    },

    // A dynamic source that others know of, until its link is closed.
    async dynamic(options) {
        const connection = await connect(options);
        const receiver = await open_receiver(connection, { source: { dynamic: true } });
        say('made', { address: receiver.source.address, dynamic: receiver.source.dynamic });
        receiver.add_credit(1);
        const [{ message }] = await take(receiver);
        await heard(); // whoever sent it has closed its link
        await shut(receiver);
        await barrier(connection, options.address);
        const late = connection.open_sender(receiver.source.address);
        late.on('sender_error', () => {});
        await once(late, 'sender_close');
        say('closed', { condition: late.error.condition });
        await heard();
        await shut(connection);
        return { body: message.body };
    },
};
