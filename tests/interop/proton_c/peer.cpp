// Scenarios of Qpid Proton in C++ against a node: `peer SCENARIO PORT ADDRESS [USER PASSWORD]`.
//
//   types     sends a message for each AMQP type in its body, in its properties and in its annotations, and one of
//             1 MB; says how many came back with other values or other types.
//   drain     asks for 10 messages of a queue and drains, twice: first there are messages, then none.
//   outcomes  takes four messages; accepts, rejects, releases, modifies one each.
//   login     logs in by PLAIN, without encryption; says whether it was let in, or why not.
//   once      sends without waiting for an answer and takes what the node settled beforehand, at most once each.
//
// Rules of this file: it says JSON objects, a line each, with the key `event`; an exception ends it with exit code 1
// and a line on standard error. Waiting ends with the test's own limit.
#include <proton/annotation_key.hpp>
#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/decimal.hpp>
#include <proton/delivery.hpp>
#include <proton/error_condition.hpp>
#include <proton/map.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver_options.hpp>
#include <proton/sender_options.hpp>
#include <proton/source_options.hpp>
#include <proton/symbol.hpp>
#include <proton/timestamp.hpp>
#include <proton/tracker.hpp>
#include <proton/transport.hpp>
#include <proton/types.hpp>
#include <proton/uuid.hpp>

#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// What all scenarios share: one connection, a sender and a receiver without credit of their own making.
class scenario : public proton::messaging_handler {
  public:
    explicit scenario(const std::vector<std::string> &arguments)
        : url_("amqp://127.0.0.1:" + arguments.at(0)), address_(arguments.at(1)), arguments_(arguments) {}

    void on_container_start(proton::container &container) override { container.connect(url_, options()); }

    void on_connection_open(proton::connection &connection) override {
        receiver_ = connection.open_receiver(address_, receiver_options().credit_window(0).auto_accept(false));
        sender_ = connection.open_sender(address_, sender_options());
    }

    void on_error(const proton::error_condition &condition) override { throw std::runtime_error(condition.what()); }

  protected:
    virtual proton::connection_options options() { return proton::connection_options(); }
    virtual proton::receiver_options receiver_options() { return proton::receiver_options(); }
    virtual proton::sender_options sender_options() { return proton::sender_options(); }

    void done(const std::string &fields) {
        std::cout << "{\"event\": \"done\"" << fields << "}" << std::endl;
        sender_.connection().close();
    }

    const std::string url_, address_;
    const std::vector<std::string> arguments_;
    proton::sender sender_;
    proton::receiver receiver_;
};

std::vector<proton::value> all_types() {
    std::vector<proton::value> values;
    proton::binary binary("bytes");
    binary.push_back(0);
    for (const proton::value &value : std::vector<proton::value>{
             true, false, std::uint8_t(255), std::int8_t(-128), std::uint16_t(65535), std::int16_t(-32768),
             std::uint32_t(0), std::uint32_t(200), std::uint32_t(4294967295u), std::int32_t(-1), std::int32_t(70000),
             std::uint64_t(0), std::uint64_t(200), std::uint64_t(1) << 63, std::int64_t(-1), std::int64_t(1) << 40,
             wchar_t(0x1f6e9), 0.5f, 0.1, proton::timestamp(1767225600000), proton::decimal32(), proton::decimal64(),
             proton::decimal128(), proton::uuid::copy("0123456789abcdef"), binary, std::string("\xc3\xa9 text"),
             std::string(), proton::symbol("holdfast:symbol")})
        values.push_back(value);
    return values;
}

// As text: Proton's own comparison of two lists never ends once it meets a null in them.
bool same(const proton::value &left, const proton::value &right) {
    if (left.empty() || right.empty()) return left.empty() == right.empty();
    return left.type() == right.type() && to_string(left) == to_string(right);
}

class types : public scenario {
    using scenario::scenario;
    std::vector<proton::message> sent_;
    std::size_t at_ = 0, wrong_ = 0;

    void on_sendable(proton::sender &) override {
        if (!sent_.empty()) return;
        for (const proton::value &value : all_types()) {
            proton::message message(value);
            message.properties().put("p", proton::get<proton::scalar>(value));
            message.message_annotations().put(proton::symbol("x-opt-a"), value);
            sent_.push_back(message);
        }
        sent_.push_back(proton::message(proton::null()));
        sent_.push_back(proton::message(std::vector<std::int32_t>{1, 2, 3}));
        sent_.push_back(proton::message(std::map<std::string, std::uint64_t>{{"a", 1}, {"b", 2}}));
        sent_.push_back(proton::message(std::vector<proton::value>{1, "two", proton::null()}));
        sent_.push_back(proton::message(proton::binary(std::string(1 << 20, 'x'))));
        step();
    }

    void step() {
        sender_.send(sent_[at_]);
        receiver_.add_credit(1);
    }

    void on_message(proton::delivery &delivery, proton::message &came) override {
        delivery.accept();
        proton::message &sent = sent_[at_];
        bool kept = same(sent.body(), came.body());
        if (sent.properties().exists("p"))
            kept = kept && same(sent.properties().get("p"), came.properties().get("p")) &&
                   same(sent.message_annotations().get(proton::symbol("x-opt-a")),
                        came.message_annotations().get(proton::symbol("x-opt-a")));
        if (!kept) {
            std::cerr << "sent " << sent.body().type() << ", came " << came.body().type() << std::endl;
            wrong_++;
        }
        if (++at_ < sent_.size())
            step();
        else
            done(", \"messages\": " + std::to_string(at_) + ", \"wrong\": " + std::to_string(wrong_));
    }
};

class drain : public scenario {
    using scenario::scenario;
    int came_ = 0;
    std::string rounds_;

    void on_receiver_open(proton::receiver &receiver) override { ask(receiver); }

    void ask(proton::receiver &receiver) {
        receiver.add_credit(10);
        receiver.drain();
    }

    void on_message(proton::delivery &delivery, proton::message &) override {
        delivery.accept();
        came_++;
    }

    void on_receiver_drain_finish(proton::receiver &receiver) override {
        bool first = rounds_.empty();
        rounds_ += (first ? "" : ", ") + std::string("[") + std::to_string(came_) + ", " +
                   std::to_string(receiver.credit()) + "]";
        came_ = 0;
        if (first)
            ask(receiver);
        else
            done(", \"rounds\": [" + rounds_ + "]");
    }
};

class outcomes : public scenario {
    using scenario::scenario;
    int at_ = 0;

    void on_receiver_open(proton::receiver &receiver) override { receiver.add_credit(4); }

    void on_message(proton::delivery &delivery, proton::message &) override {
        switch (at_++) {
        case 0: delivery.accept(); break;
        case 1: delivery.reject(); break;
        case 2: delivery.release(); break;
        default: delivery.modify(); done("");
        }
    }
};

class once : public scenario {
    using scenario::scenario;
    static const int total_ = 100;
    int sent_ = 0, came_ = 0;
    bool settled_ = true;

    proton::receiver_options receiver_options() override {
        return proton::receiver_options().delivery_mode(proton::delivery_mode::AT_MOST_ONCE);
    }
    proton::sender_options sender_options() override {
        return proton::sender_options().delivery_mode(proton::delivery_mode::AT_MOST_ONCE);
    }

    void on_receiver_open(proton::receiver &receiver) override { receiver.add_credit(total_); }

    void on_sendable(proton::sender &sender) override {
        while (sender.credit() && sent_ < total_) sender.send(proton::message(sent_++));
    }

    void on_message(proton::delivery &delivery, proton::message &message) override {
        if (proton::get<int>(message.body()) != came_) throw std::runtime_error("out of order");
        settled_ = settled_ && delivery.settled();
        if (++came_ == total_) done(std::string(", \"settled\": ") + (settled_ ? "true" : "false"));
    }
};

class login : public scenario {
    using scenario::scenario;

    proton::connection_options options() override {
        return proton::connection_options().user(arguments_.at(2)).password(arguments_.at(3))
            .sasl_allowed_mechs("PLAIN").sasl_allow_insecure_mechs(true);
    }

    void on_sender_open(proton::sender &) override { done(", \"open\": true"); }

    void on_transport_error(proton::transport &transport) override {
        std::cout << "{\"event\": \"done\", \"open\": false, \"why\": \"" << transport.error().name() << "\"}"
                  << std::endl;
    }
};

template <class Scenario> std::unique_ptr<scenario> make(const std::vector<std::string> &arguments) {
    return std::unique_ptr<scenario>(new Scenario(arguments));
}

} // namespace

int main(int argc, char **argv) {
    const std::map<std::string, std::unique_ptr<scenario> (*)(const std::vector<std::string> &)> scenarios = {
        {"types", make<types>}, {"drain", make<drain>}, {"outcomes", make<outcomes>}, {"login", make<login>},
        {"once", make<once>}};
    try {
        if (argc < 4) throw std::runtime_error("usage: peer SCENARIO PORT ADDRESS [USER PASSWORD]");
        auto chosen = scenarios.at(argv[1])(std::vector<std::string>(argv + 2, argv + argc));
        proton::container(*chosen).run();
        return 0;
    } catch (const std::exception &error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
}
