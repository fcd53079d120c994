// Scenarios of rhea, the JavaScript AMQP client, against a node. `node rhea_peer.js SCENARIO JSON`.
//
// Rules of this file: it says JSON objects, a line each, with the key `event`; it judges nothing but what only it can
// see (its own bytes); rhea_peer.py starts it, the tests assert. Waiting ends with the test's own limit.
'use strict';

const { lines, say } = require('./rhea_client.js');
const scenarios = {
    ...require('./rhea_messages.js'), ...require('./rhea_links.js'), ...require('./rhea_relay.js'),
    ...require('./rhea_broker.js'), ...require('./rhea_access.js'),
};

const [name, text] = process.argv.slice(2);
scenarios[name](JSON.parse(text)).then((result) => {
    say('done', result);
    lines.return();
    process.exitCode = 0;
    process.stdin.destroy();
});
