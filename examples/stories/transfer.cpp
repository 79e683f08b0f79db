// Moves money between two keys, over a connection that loses answers.
//
// Four cashiers pay orders: each takes 1 from one account and adds it to another. About one answer
// in six is lost on its way, and the connection with it, so that a cashier cannot know whether etcd
// has done what it was asked for.
//
// It is done twice: with a transaction that compares what was read, and is tried again until etcd
// says that it is done; and with coetcd::stm. Nobody ever finds money missing, with either. But the
// first way pays some orders twice: that the accounts have changed does not say by whom.
//
// Run: transfer [http://127.0.0.1:2379]
// Exit code 0 if it came out that way.
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int cashiers = 4;
constexpr int orders = 15; // of each cashier
constexpr int capital = 1000;

void rethrow(std::exception_ptr failure) {
    if (failure) {
        std::rethrow_exception(failure);
    }
}

/// Passes on what clients and etcd say to each other, but for some of the answers.
class bad_line {
public:
    bad_line(const asio::any_io_executor& executor, const std::string& url)
        : acceptor_(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
        const auto host = url.find("//") + 2;
        const auto port = url.rfind(':');
        tcp::resolver resolver(executor);
        etcd_ = *resolver.resolve(url.substr(host, port - host), url.substr(port + 1)).begin();
        asio::co_spawn(executor, accept(), rethrow);
    }

    std::string url() const {
        return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
    }
    int lost() const { return lost_; }
    void close() { acceptor_.close(); }

private:
    struct pair {
        tcp::socket client;
        tcp::socket etcd;
    };

    asio::awaitable<void> accept() {
        boost::system::error_code ec;
        for (;;) {
            tcp::socket client =
                co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                co_return; // it was closed
            }
            tcp::socket server(acceptor_.get_executor());
            co_await server.async_connect(etcd_, asio::redirect_error(asio::use_awaitable, ec));
            if (!ec) {
                const auto both =
                    std::make_shared<pair>(pair{std::move(client), std::move(server)});
                asio::co_spawn(acceptor_.get_executor(), pass(both, false), rethrow);
                asio::co_spawn(acceptor_.get_executor(), pass(both, true), rethrow);
            }
        }
    }

    asio::awaitable<void> pass(std::shared_ptr<pair> both, bool answers) {
        tcp::socket& from = answers ? both->etcd : both->client;
        tcp::socket& to = answers ? both->client : both->etcd;
        std::array<char, 16384> bytes;
        boost::system::error_code ec;
        while (!ec) {
            const auto size = co_await from.async_read_some(
                asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, ec));
            if (!ec && answers && chance_() % 6 == 0) {
                ++lost_;
                break;
            }
            if (!ec) {
                co_await asio::async_write(
                    to, asio::buffer(bytes, size), asio::redirect_error(asio::use_awaitable, ec));
            }
        }
        both->client.close(ec);
        both->etcd.close(ec);
    }

    tcp::acceptor acceptor_;
    tcp::endpoint etcd_;
    std::mt19937 chance_{42};
    int lost_ = 0;
};

/// The keys of one run.
struct accounts {
    std::string payer;
    std::string payee;
};

/// Reads both accounts, and writes them if nobody has meanwhile; again, until that is done.
asio::awaitable<void> pay_naively(coetcd::client client, const accounts& key) {
    for (bool paid = false; !paid;) {
        const auto from = co_await client.get(key.payer);
        const auto to = co_await client.get(key.payee);
        coetcd::txn move =
            coetcd::txn()
                .when(coetcd::compare::mod_revision(key.payer) == from->mod_revision,
                      coetcd::compare::mod_revision(key.payee) == to->mod_revision)
                .then(coetcd::op::put(key.payer, std::to_string(std::stoi(from->value) - 1)),
                      coetcd::op::put(key.payee, std::to_string(std::stoi(to->value) + 1)));
        try {
            const coetcd::txn_response answer = co_await client.txn(std::move(move));
            paid = answer.succeeded;
        } catch (const coetcd::error& e) {
            if (e.code() != coetcd::condition::outcome_unknown) {
                throw;
            }
        }
    }
}

/// The same, and etcd is told which payment it is.
asio::awaitable<void> pay(const coetcd::session& session, const accounts& key) {
    auto move = [&key](coetcd::transaction& t) -> asio::awaitable<void> {
        const auto from = co_await t.get(key.payer);
        const auto to = co_await t.get(key.payee);
        t.put(key.payer, std::to_string(std::stoi(*from) - 1));
        t.put(key.payee, std::to_string(std::stoi(*to) + 1));
    };
    coetcd::stm_options options;
    options.attempts = 1000;
    co_await coetcd::stm(session, move, options);
}

struct result {
    int paid = 0;
    int sum = 0;
    int lost = 0;       // answers
    int audits = 0;     // while it was paid
    int wrong_sums = 0; // that they found
};

asio::awaitable<int> sum(coetcd::transaction& t, const accounts& key) {
    const auto from = co_await t.get(key.payer);
    const auto to = co_await t.get(key.payee);
    co_return std::stoi(*from) + std::stoi(*to);
}

/// Pays all orders, and looks at the accounts all the while.
asio::awaitable<result> pay_all(std::string url, bool naively) {
    const auto executor = co_await asio::this_coro::executor;
    const coetcd::client direct(executor, url);
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    const std::string run = std::to_string(now) + "-" + std::to_string(::getpid());
    accounts key;
    key.payer = "accounts/" + run + "/payer";
    key.payee = "accounts/" + run + "/payee";
    co_await direct.put(key.payer, std::to_string(capital));
    co_await direct.put(key.payee, "0");

    result r;
    bad_line line(executor, url);
    int working = cashiers;
    std::exception_ptr failure;
    auto work = [&]() -> asio::awaitable<void> {
        const coetcd::client client(executor, line.url());
        coetcd::session session = co_await coetcd::session::open(client);
        for (int i = 0; i < orders; ++i) {
            if (naively) {
                co_await pay_naively(client, key);
            } else {
                co_await pay(session, key);
            }
        }
        co_await session.close();
    };
    for (int i = 0; i < cashiers; ++i) {
        asio::co_spawn(executor, work(), [&](std::exception_ptr f) {
            failure = f ? f : failure;
            --working;
        });
    }
    auto audit = [&key](coetcd::transaction& t) { return sum(t, key); };
    while (working != 0) {
        const int total = co_await coetcd::stm(direct, audit);
        ++r.audits;
        r.wrong_sums += total == capital ? 0 : 1;
    }
    line.close();
    rethrow(failure);
    const auto payee = co_await direct.get(key.payee);
    r.paid = std::stoi(payee->value);
    r.sum = co_await coetcd::stm(direct, audit);
    r.lost = line.lost();
    auto all = coetcd::key_range::prefix("accounts/" + run + "/");
    co_await direct.erase(std::move(all));
    co_return r;
}

result play(const std::string& url, bool naively) {
    asio::io_context context;
    auto ended = asio::co_spawn(context, pay_all(url, naively), asio::use_future);
    context.run();
    return ended.get();
}

void print_row(const char* what, int naive, int stm) {
    std::printf("  %-44s %16d   %11d\n", what, naive, stm);
}

int compare(const std::string& url) {
    constexpr int all = cashiers * orders;
    const result naive = play(url, true);
    const result stm = play(url, false);
    std::printf("  %-44s %16s   %11s\n", "", "tried again", "coetcd::stm");
    print_row("orders, of 1 each", all, all);
    print_row("paid", naive.paid, stm.paid);
    print_row("sum of both accounts", naive.sum, stm.sum);
    print_row("times that the sum was looked at meanwhile", naive.audits, stm.audits);
    print_row("times that it was wrong", naive.wrong_sums, stm.wrong_sums);
    print_row("answers that were lost", naive.lost, stm.lost);

    const bool kept =
        naive.sum == capital && stm.sum == capital && naive.wrong_sums == 0 && stm.wrong_sums == 0;
    const bool twice = naive.paid > all;
    const bool exact = stm.paid == all;
    std::printf("\ntried again: %s. coetcd::stm: %s.\n",
                twice ? "paid some orders twice" : "PAID NOTHING TWICE, which is not as expected",
                exact && kept ? "paid each order once" : "NOT AS EXPECTED");
    return kept && twice && exact ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return compare(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    } catch (const std::exception& e) {
        std::fprintf(stderr, "transfer: %s\n", e.what());
        return 1;
    }
}

// Prints:
//                                                       tried again   coetcd::stm
//     orders, of 1 each                                          60            60
//     paid                                                       *            60
//     sum of both accounts                                     1000          1000
//     times that the sum was looked at meanwhile             *          *
//     times that it was wrong                                     0             0
//     answers that were lost                                 *          *
//   ...
//   tried again: paid some orders twice. coetcd::stm: paid each order once.
