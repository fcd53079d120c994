// A scenario of rhea with a node that does not let everybody do everything.
//
// Rules of this file: those of rhea_peer.js.
'use strict';

const { connect, open_sender, open_receiver, send, shut, once } = require('./rhea_client.js');

// The status of a request to purge the queue.
async function purged(connection, address) {
    const answers = await open_receiver(connection, { source: '$management', target: 'me', credit_window: 1 });
    const sender = await open_sender(connection, '$management');
    const asked = { operation: 'PURGE', type: 'holdfast:queue', name: address };
    await send(sender, { reply_to: 'me', application_properties: asked, body: null });
    if (!answers.arrived.length) await once(answers, 'came');
    await shut(sender);
    await shut(answers);
    return answers.arrived[0].message.application_properties.statusCode;
}

// What an attach, a message or a request is refused with; '' where it is not.
async function tried(connection, how, address) {
    if (how === 'purge') return await purged(connection, address) === 403 ? 'amqp:unauthorized-access' : '';
    if (how === 'message') {
        const sender = await open_sender(connection, {});
        const { remote_state } = await send(sender, { to: address, body: 'x' });
        await shut(sender);
        return remote_state.error ? remote_state.error.condition : '';
    }
    const link = how === 'send' ? connection.open_sender(address)
        : connection.open_receiver({
            credit_window: 0, source: { address, distribution_mode: how === 'browse' ? 'copy' : 'move' },
        });
    const kind = how === 'send' ? 'sender' : 'receiver';
    link.on(`${kind}_error`, () => {});
    await once(link, `${kind}_open`);
    const terminus = how === 'send' ? link.remote.attach.target : link.remote.attach.source;
    if (terminus && terminus.address) {
        await shut(link);
        return '';
    }
    if (!link.error) await once(link, `${kind}_close`);
    return link.error.condition;
}

module.exports = {
    async access(options) {
        const connection = await connect(options);
        const seen = [];
        for (const [how, address] of options.tries) seen.push(await tried(connection, how, address));
        await shut(connection);
        return { seen };
    },
};
