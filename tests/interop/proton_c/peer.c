/* Scenarios of Qpid Proton in C against a node: `peer SCENARIO PORT ADDRESS [ARGUMENT…]`.
 *
 *   outcomes LETTERS first|second   takes a message for each letter, one at a time, and answers it by that letter:
 *                                   a accepted, r rejected, l released, f modified (failed), u modified (failed and
 *                                   undeliverable here). Mode second: settled once the node has.
 *   drain CREDIT                    asks for CREDIT messages at most and for the rest of the credit back.
 *   large PART SIZE…                sends a message of each SIZE bytes, written PART bytes at a time, and takes it.
 *   burst COUNT settled|unsettled [FIRST]
 *                                   sends COUNT messages, numbers from FIRST (1), with whatever credit there is.
 *
 * Rules of this file: it says JSON objects, a line each, with the key `event`; what it cannot do ends it with exit
 * code 1 and a line on standard error. Waiting ends with the test's own limit.
 */
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/object.h>
#include <proton/proactor.h>
#include <proton/session.h>
#include <proton/transport.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct peer {
    const char *scenario, *address;
    char **arguments;
    int argument_count;
    pn_link_t *sender, *receiver;
    pn_rwbytes_t arriving; /* the parts so far of the message under way */
    int at;                /* which letter, or which size */
    int sent, accepted, came;
    size_t written; /* bytes of the large message that were handed to Proton */
    char *large;    /* its payload */
    size_t large_size;
    bool drain_over;
} peer;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why ? why : "");
    exit(1);
}

static void check(const char *what, pn_condition_t *condition) {
    if (pn_condition_is_set(condition)) {
        fprintf(stderr, "%s: ", pn_condition_get_name(condition));
        fail(what, pn_condition_get_description(condition));
    }
}

static bool is(const peer *p, const char *scenario) { return strcmp(p->scenario, scenario) == 0; }

static pn_delivery_t *new_delivery(peer *p) {
    p->sent++;
    return pn_delivery(p->sender, pn_dtag((const char *)&p->sent, sizeof p->sent));
}

/* ------------------------------------------------------------------------------------------------ large */

static unsigned char pattern(size_t at) { return (unsigned char)(at * 31 + (at >> 8)); }

/* Begins the next size, or ends. */
static void next_large(peer *p) {
    if (p->at + 1 >= p->argument_count) {
        printf("{\"event\": \"done\", \"same\": %d}\n", p->at);
        pn_connection_close(pn_session_connection(pn_link_session(p->sender)));
        return;
    }
    size_t size = strtoul(p->arguments[p->at + 1], NULL, 10);
    unsigned char head[] = {0, 0x53, 0x75, 0xb0, size >> 24, size >> 16, size >> 8, size};
    p->large_size = sizeof head + size;
    p->large = realloc(p->large, p->large_size);
    memcpy(p->large, head, sizeof head);
    for (size_t i = 0; i < size; i++) p->large[sizeof head + i] = (char)pattern(i);
    p->written = 0;
    new_delivery(p);
}

/* One more part, whenever what went before has left. */
static void write_large(peer *p) {
    pn_delivery_t *current = pn_link_current(p->sender);
    if (!current || !p->large || pn_delivery_pending(current)) return;
    size_t part = strtoul(p->arguments[0], NULL, 10), left = p->large_size - p->written;
    if (part > left) part = left;
    pn_link_send(p->sender, p->large + p->written, part);
    p->written += part;
    if (p->written == p->large_size) pn_link_advance(p->sender);
}

static void compare_large(peer *p, pn_message_t *message) {
    pn_data_t *body = pn_message_body(message);
    pn_data_rewind(body);
    if (!pn_data_next(body) || pn_data_type(body) != PN_BINARY) fail("large", "the body is no binary");
    pn_bytes_t found = pn_data_get_binary(body);
    if (found.size != p->large_size - 8) fail("large", "another size came back");
    for (size_t i = 0; i < found.size; i++)
        if ((unsigned char)found.start[i] != pattern(i)) fail("large", "other bytes came back");
}

/* ------------------------------------------------------------------------------------------------ outcomes */

static bool second(const peer *p) { return strcmp(p->arguments[1], "second") == 0; }

static void answer(peer *p, pn_delivery_t *delivery) {
    pn_disposition_t *local = pn_delivery_local(delivery);
    switch (p->arguments[0][p->at]) {
    case 'a': pn_delivery_update(delivery, PN_ACCEPTED); break;
    case 'r':
        pn_condition_set_name(pn_disposition_condition(local), "example:poison");
        pn_delivery_update(delivery, PN_REJECTED);
        break;
    case 'l': pn_delivery_update(delivery, PN_RELEASED); break;
    case 'u': pn_disposition_set_undeliverable(local, true); /* fall through */
    case 'f':
        pn_disposition_set_failed(local, true);
        pn_delivery_update(delivery, PN_MODIFIED);
        break;
    default: fail("no such letter", p->arguments[0]);
    }
}

static void next_outcome(peer *p, pn_delivery_t *delivery) {
    pn_delivery_settle(delivery);
    if (p->arguments[0][++p->at]) {
        pn_link_flow(p->receiver, 1);
    } else {
        printf("{\"event\": \"done\"}\n");
        pn_link_close(p->receiver);
        pn_connection_close(pn_session_connection(pn_link_session(p->receiver)));
    }
}

/* ------------------------------------------------------------------------------------------------ events */

static void open_links(peer *p, pn_connection_t *connection) {
    pn_connection_set_container(connection, "peer-in-c");
    pn_connection_open(connection);
    pn_session_t *session = pn_session(connection);
    pn_session_open(session);
    if (is(p, "large") || is(p, "burst")) {
        p->sender = pn_sender(session, "c-sender");
        pn_terminus_set_address(pn_link_target(p->sender), p->address);
        if (is(p, "burst") && strcmp(p->arguments[1], "settled") == 0)
            pn_link_set_snd_settle_mode(p->sender, PN_SND_SETTLED);
        pn_link_open(p->sender);
    }
    if (!is(p, "burst")) {
        p->receiver = pn_receiver(session, "c-receiver");
        pn_terminus_set_address(pn_link_source(p->receiver), p->address);
        if (is(p, "outcomes") && second(p)) pn_link_set_rcv_settle_mode(p->receiver, PN_RCV_SECOND);
        pn_link_open(p->receiver);
        if (is(p, "drain"))
            pn_link_drain(p->receiver, atoi(p->arguments[0]));
        else
            pn_link_flow(p->receiver, 1);
    }
}

/* A whole message. */
static void arrived(peer *p, pn_delivery_t *delivery) {
    pn_message_t *message = pn_message();
    if (pn_message_decode(message, p->arriving.start, p->arriving.size)) fail("decode", pn_code(PN_ERR));
    p->arriving.size = 0;
    p->came++;
    if (is(p, "large")) {
        compare_large(p, message);
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery);
        pn_link_flow(p->receiver, 1);
        p->at++;
        next_large(p);
    } else {
        pn_string_t *body = pn_string(NULL);
        pn_inspect(pn_message_body(message), body);
        printf("{\"event\": \"came\", \"body\": %s, \"count\": %d, \"first\": %s}\n", pn_string_get(body),
               (int)pn_message_get_delivery_count(message), pn_message_is_first_acquirer(message) ? "true" : "false");
        pn_free(body);
        if (is(p, "outcomes")) {
            answer(p, delivery);
            if (!second(p)) next_outcome(p, delivery);
        } else {
            pn_delivery_update(delivery, PN_ACCEPTED);
            pn_delivery_settle(delivery);
        }
    }
    pn_message_free(message);
}

static void on_delivery(peer *p, pn_delivery_t *delivery) {
    if (pn_link_is_sender(pn_delivery_link(delivery))) {
        if (!pn_delivery_updated(delivery)) return;
        if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) fail("sent", "not accepted");
        pn_delivery_settle(delivery);
        p->accepted++;
        if (is(p, "burst") && p->accepted == atoi(p->arguments[0])) {
            printf("{\"event\": \"done\", \"accepted\": %d}\n", p->accepted);
            pn_connection_close(pn_session_connection(pn_link_session(p->sender)));
        }
    } else if (pn_delivery_readable(delivery)) {
        size_t pending = pn_delivery_pending(delivery);
        p->arriving.start = realloc(p->arriving.start, p->arriving.size + pending + 1);
        ssize_t took = pn_link_recv(p->receiver, p->arriving.start + p->arriving.size, pending);
        if (took > 0) p->arriving.size += took;
        if (!pn_delivery_partial(delivery)) {
            if (is(p, "outcomes") && second(p)) pn_link_advance(p->receiver);
            arrived(p, delivery);
        }
    } else if (is(p, "outcomes") && second(p) && pn_delivery_settled(delivery)) {
        next_outcome(p, delivery);
    }
}

static void on_flow(peer *p) {
    if (is(p, "large") && pn_link_credit(p->sender) > 0) {
        if (!p->large) next_large(p);
        write_large(p);
    }
    if (is(p, "burst")) {
        int count = atoi(p->arguments[0]);
        int before = p->argument_count > 2 ? atoi(p->arguments[2]) - 1 : 0;
        bool settled = strcmp(p->arguments[1], "settled") == 0;
        while (p->sent < count && pn_link_credit(p->sender) > 0) {
            char payload[] = "\0\x53\x77\x71....";
            pn_delivery_t *delivery = new_delivery(p);
            for (int i = 0; i < 4; i++) payload[4 + i] = (char)((before + p->sent) >> (24 - 8 * i));
            pn_link_send(p->sender, payload, 8);
            pn_link_advance(p->sender);
            if (settled) pn_delivery_settle(delivery);
        }
        if (settled && p->sent == count && p->accepted == 0) {
            p->accepted = count;
            printf("{\"event\": \"done\", \"accepted\": 0}\n");
            pn_connection_close(pn_session_connection(pn_link_session(p->sender)));
        }
    }
    if (is(p, "drain") && !p->drain_over && !pn_link_draining(p->receiver)) {
        p->drain_over = true;
        printf("{\"event\": \"done\", \"came\": %d, \"credit\": %d}\n", p->came, pn_link_credit(p->receiver));
        pn_connection_close(pn_session_connection(pn_link_session(p->receiver)));
    }
}

/* Whether to go on. */
static bool handle(peer *p, pn_event_t *event) {
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: open_links(p, pn_event_connection(event)); break;
    case PN_LINK_FLOW: on_flow(p); break;
    case PN_DELIVERY: on_delivery(p, pn_event_delivery(event)); break;
    case PN_TRANSPORT:
        if (is(p, "large")) write_large(p);
        break;
    case PN_TRANSPORT_CLOSED: check("transport", pn_transport_condition(pn_event_transport(event))); break;
    case PN_CONNECTION_REMOTE_CLOSE:
        check("connection", pn_connection_remote_condition(pn_event_connection(event)));
        pn_connection_close(pn_event_connection(event));
        break;
    case PN_SESSION_REMOTE_CLOSE:
        check("session", pn_session_remote_condition(pn_event_session(event)));
        break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH:
        check("link", pn_link_remote_condition(pn_event_link(event)));
        break;
    case PN_PROACTOR_INACTIVE: return false;
    default: break;
    }
    return true;
}

int main(int argc, char **argv) {
    if (argc < 5) fail("usage", "peer SCENARIO PORT ADDRESS ARGUMENT…");
    peer p = {.scenario = argv[1], .address = argv[3], .arguments = argv + 4, .argument_count = argc - 4};
    setvbuf(stdout, NULL, _IOLBF, 0);
    char address[PN_MAX_ADDR];
    pn_proactor_t *proactor = pn_proactor();
    pn_proactor_addr(address, sizeof address, "127.0.0.1", argv[2]);
    pn_proactor_connect2(proactor, NULL, NULL, address);
    for (bool on = true; on;) {
        pn_event_batch_t *events = pn_proactor_wait(proactor);
        for (pn_event_t *event; on && (event = pn_event_batch_next(events));) on = handle(&p, event);
        pn_proactor_done(proactor, events);
    }
    pn_proactor_free(proactor);
    free(p.arriving.start);
    free(p.large);
    return 0;
}
