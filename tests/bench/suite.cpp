// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bench/measure.hpp"
#include "bench/report.hpp"

namespace bench {
namespace {

constexpr const char* usage = R"(bench [OPTION]...

Measures coetcd beside others. Prints tables, and what is asked of it.

  --etcd PATH    an etcd to run against; may be repeated. Default: etcd
  --go PATH      the program of the Go client, built from tests/bench/go
  --only CASE    only cases whose name begins so; may be repeated
  --rounds N     how often each is measured, by turns: the median counts. Default: 3
  --short        fewer and smaller cases, one round: about a minute
  --check        fail if a bound does not hold
  --list         print the names of the cases
  --json FILE    write all numbers there
  --svg FILE     draw a chart there
)";

struct options {
    programs all;
    std::vector<std::string> peers; ///< Their versions, for people.
    std::vector<std::string> only;
    int rounds = 3;
    bool in_short = false;
    bool check = false;
    bool list = false;
    bool help = false;
    std::string json_file;
    std::string svg_file;
};

options parse(const std::vector<std::string>& arguments) {
    options o;
    bool rounds_given = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& name = arguments[i];
        const auto value = [&]() -> const std::string& {
            if (i + 1 == arguments.size()) {
                throw std::invalid_argument(name + " needs a value");
            }
            return arguments[++i];
        };
        if (name == "--etcd") {
            o.all.etcds.push_back(value());
        } else if (name == "--go") {
            o.all.go = value();
        } else if (name == "--only") {
            o.only.push_back(value());
        } else if (name == "--rounds") {
            o.rounds = std::stoi(value());
            rounds_given = true;
        } else if (name == "--json") {
            o.json_file = value();
        } else if (name == "--svg") {
            o.svg_file = value();
        } else if (name == "--short") {
            o.in_short = true;
        } else if (name == "--check") {
            o.check = true;
        } else if (name == "--list") {
            o.list = true;
        } else if (name == "--help") {
            o.help = true;
        } else {
            throw std::invalid_argument("no option " + name + "; see --help");
        }
    }
    if (o.in_short && !rounds_given) {
        o.rounds = 1;
    }
    if (o.all.etcds.empty()) {
        o.all.etcds.emplace_back("etcd");
    }
    return o;
}

bool is_wanted(const bench_case& c, const std::vector<std::string>& only) {
    return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& begin) {
               return c.id.starts_with(begin);
           });
}

/// Why a subject cannot take part; empty if it can.
std::string missing(const programs& all, const std::string& subject) {
    if (subject == "go" && all.go.empty()) {
        return "there is no Go client";
    }
    if (subject == "redis" && all.redis.empty()) {
        return "there is no redis-server, or no hiredis";
    }
    return {};
}

/// One case, with an etcd of its own for all subjects and rounds.
class case_run {
public:
    case_run(const options& o, const std::string& etcd, const bench_case& c)
        : options_(o)
        , servers_(o.all, etcd, c.fsync_ms, c.members)
        , what_(c) {
        for (const std::string& subject : c.subjects) {
            if (missing(o.all, subject).empty()) {
                row each;
                each.what = c;
                each.subject = subject;
                rows_.push_back(std::move(each));
            }
        }
    }

    /// @returns How many have failed.
    int run() {
        const int rounds = what_.once ? 1 : options_.rounds * what_.turns;
        for (int round = 0; round < rounds; ++round) {
            for (row& each : rows_) {
                measure(each, round);
            }
            std::reverse(rows_.begin(), rows_.end()); // the first one is not always the same
        }
        if (rounds % 2 != 0) {
            std::reverse(rows_.begin(), rows_.end());
        }
        return failed_;
    }

    std::vector<row> take() { return std::move(rows_); }

private:
    void measure(row& each, int round) {
        std::cerr << what_.id << ", round " << round + 1 << ", " << each.subject << ": ";
        const auto began = clock::now();
        std::string remark;
        try {
            each.rounds.push_back(
                run_case(what_, each.subject, options_.all, servers_, ++number_, remark));
        } catch (const std::exception& e) {
            remark = std::string("failed: ") + e.what();
            ++failed_;
        }
        std::cerr << seconds_since(began) << " s " << remark << '\n';
        if (!remark.empty()) {
            each.remark = remark;
        }
    }

    const options& options_;
    servers servers_;
    const bench_case& what_;
    std::vector<row> rows_;
    int number_ = 0;
    int failed_ = 0;
};

void write(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    out << text;
    if (!out.flush()) {
        throw std::runtime_error("cannot write " + file);
    }
}

int run(const options& o) {
    const std::vector<bench_case> cases = all_cases(o.in_short);
    const bool slow_disks = delays_fsync();
    if (!slow_disks) {
        std::cout << "skipped: disk: there is no strace, or it may not delay etcd's writes\n";
    }
    int failed = 0;
    int broken = 0;
    json written;
    written["processors"] = std::thread::hardware_concurrency();
    written["rounds"] = o.rounds;
    written["peers"] = o.peers;
    std::string picture;
    for (const std::string& etcd : o.all.etcds) {
        results r;
        r.version = version_of(etcd);
        std::cerr << "etcd " << r.version << '\n';
        for (const bench_case& c : cases) {
            if (c.fsync_ms != 0 && !slow_disks) {
                continue; // it was said
            }
            if (is_wanted(c, o.only)) {
                case_run one(o, etcd, c);
                failed += one.run();
                for (row& each : one.take()) {
                    r.rows.push_back(std::move(each));
                }
            }
        }
        const auto bounds = bounds_of(r);
        print_table(r);
        print_bounds(bounds);
        for (const bound& b : bounds) {
            broken += b.holds() ? 0 : 1;
            failed += b.anywhere && !b.holds() ? 1 : 0;
        }
        std::cout.flush();
        written["results"].push_back(to_json(r, bounds));
        picture = chart(r); // the last etcd is the newest
        // What there is, should a later one fail.
        if (!o.json_file.empty()) {
            write(o.json_file, written.dump(1) + '\n');
        }
        if (!o.svg_file.empty()) {
            write(o.svg_file, picture);
        }
    }
    if (failed != 0) {
        std::cout << failed << " measurements have failed, or show a defect\n";
    }
    if (broken != 0) {
        std::cout << broken << " bounds do not hold\n";
    }
    return failed != 0 || (o.check && broken != 0) ? 1 : 0;
}

} // namespace

int run_all(std::vector<std::string> arguments) {
    try {
        options o = parse(arguments);
        if (o.help) {
            std::cout << usage;
            return 0;
        }
        if (o.list) {
            for (const bench_case& c : all_cases(o.in_short)) {
                std::cout << c.id << '\n';
            }
            return 0;
        }
        o.all.self = "/proc/self/exe";
#ifdef COETCD_BENCH_REDIS
        o.all.redis = "redis-server";
#endif
        for (std::string* program : {&o.all.go, &o.all.redis}) {
            const std::string version = program->empty() ? "" : version_line(*program);
            if (version.empty()) {
                program->clear();
            } else {
                o.peers.push_back(version);
                std::cout << version << '\n';
            }
        }
        for (const char* subject : {"go", "redis"}) {
            const std::string why = missing(o.all, subject);
            if (!why.empty()) {
                std::cout << "skipped: " << subject << ": " << why << '\n';
            }
        }
        return run(o);
    } catch (const std::exception& e) {
        std::cerr << "bench: " << e.what() << '\n';
        return 2;
    }
}

} // namespace bench
