// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/time.h>
#include <unistd.h>

#include "sim/scenario.hpp"
#include "sim/shrink.hpp"
#include "sim/stories.hpp"

namespace {

/// Ends the program if one history takes a minute of the processor's time, which is a hundred
/// times what the longest take: code that goes round in circles comes to no check.
class watchdog {
public:
    explicit watchdog(std::uint64_t seed) {
        const int n = std::snprintf(text_,
                                    sizeof text_,
                                    "VIOLATION, seed %llu: it does not end\n",
                                    static_cast<unsigned long long>(seed));
        size_ = static_cast<std::size_t>(n);
        std::signal(SIGVTALRM, [](int) {
            (void)!::write(STDOUT_FILENO, text_, size_);
            ::_exit(1);
        });
        set(60);
    }
    ~watchdog() { set(0); }
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;

private:
    static void set(int seconds) {
        itimerval timer{};
        timer.it_value.tv_sec = seconds;
        ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
    }
    static inline char text_[80];
    static inline std::size_t size_;
};

constexpr const char* usage =
    R"(sim [--seconds S] [--schedules N] [--seed K] [--runs N] [--points] [--first] [--verbose]
    [--trace] [--new-keys] [--shrink SEED]

Runs the library on a simulated network, clock and etcd; one history for each seed, and a short
one that is about one thing alone.

  --seconds S  how long to go on (20)
  --schedules N  likewise, but as many histories, however fast the machine is
  --seed K     the first seed (1); with --verbose the one to be shown
  --runs N     that many seeds, however long it takes
  --points     only: cancel, fail and crash at every suspension of a client; cancel at every answer
  --first      stop at the first violation
  --verbose    print what happens in each
  --new-keys   each attempt to take a lock may have a key of its own
  --trace      print the hash of each history: the same for all compilers
  --shrink SEED  only: take faults, users and steps away from a history that violates something,
               for as long as it does, and print what is left

Exit status 1 if something was violated.
)";

struct arguments {
    double seconds = 20;
    std::uint64_t schedules = 0; // if not 0, instead of seconds
    std::uint64_t seed = 1;
    std::uint64_t runs = 0;
    bool points = false;
    bool first = false;
    bool verbose = false;
    bool trace = false;
    bool new_keys = false;
    std::uint64_t shrink = 0; // the seed
};

arguments parse(int argc, char** argv) {
    arguments a;
    for (int i = 1; i < argc; ++i) {
        const std::string_view what = argv[i];
        const auto value = [&] {
            if (++i == argc) {
                throw std::invalid_argument(std::string(what) + " needs a value");
            }
            return std::string(argv[i]);
        };
        if (what == "--seconds") {
            a.seconds = std::stod(value());
        } else if (what == "--schedules") {
            a.schedules = std::stoull(value());
        } else if (what == "--seed") {
            a.seed = std::stoull(value());
        } else if (what == "--runs") {
            a.runs = std::stoull(value());
        } else if (what == "--points") {
            a.points = true;
        } else if (what == "--first") {
            a.first = true;
        } else if (what == "--verbose") {
            a.verbose = true;
        } else if (what == "--trace") {
            a.trace = true;
        } else if (what == "--new-keys") {
            a.new_keys = true;
        } else if (what == "--shrink") {
            a.shrink = std::stoull(value());
        } else {
            throw std::invalid_argument(std::string(what) + " is unknown");
        }
    }
    return a;
}

struct totals {
    std::uint64_t schedules = 0;
    std::uint64_t replays = 0;
    std::uint64_t points = 0;
    std::uint64_t violations = 0;
    std::uint64_t calls = 0;
    std::uint64_t grants = 0;
    std::uint64_t shared_grants = 0;
    std::uint64_t resumed = 0;
    std::uint64_t upgrades = 0;
    std::uint64_t downgrades = 0;
    std::uint64_t permits = 0;
    std::uint64_t forced = 0;
    std::uint64_t retentions = 0;
    std::uint64_t claims = 0;
    std::uint64_t outlasting = 0;
    std::uint64_t delays = 0;
    std::uint64_t proofs = 0;
    std::uint64_t heard = 0;
    std::uint64_t works = 0;
    std::uint64_t tasks = 0;
    std::uint64_t cancellations = 0;
    std::uint64_t told = 0;
    std::uint64_t compactions = 0;
    std::uint64_t states = 0;
    std::uint64_t proclaimed = 0;
    std::uint64_t handed_out = 0;
    std::uint64_t put_back = 0;
    std::uint64_t gathered = 0;
    std::uint64_t latches = 0;
    std::uint64_t closings = 0;
    std::uint64_t late_entries = 0;
    std::uint64_t ends_told = 0;
    std::uint64_t wakes = 0;
    double busiest = 0;
    std::uint64_t busiest_seed = 0;
    std::array<std::uint64_t, sim::fault_kinds> faults{};
    double virtual_seconds = 0;
};

std::string describe(const sim::plan& p) {
    std::string text = "seed " + std::to_string(p.seed);
    if (p.what == sim::plan::kind::cancel_at) {
        text += ", cancelled at suspension " + std::to_string(p.point);
    } else if (p.what == sim::plan::kind::answer_at) {
        text += ", cancelled with an answer, at point " + std::to_string(p.point);
    } else if (p.what == sim::plan::kind::crash_at) {
        text += ", crashed at suspension " + std::to_string(p.point);
    } else if (p.what == sim::plan::kind::fail_at) {
        text += ", call " + std::to_string(p.point) + " " + std::string(name(p.how));
    }
    return text;
}

void show(const sim::outcome& o) {
    for (const std::string& line : o.notes) {
        std::cout << "    " << line << '\n';
    }
}

/// Runs one history; runs some twice, to see whether chance is all in the seed.
sim::outcome examine(const sim::plan& p, const arguments& a, totals& t) {
    sim::plan wordy = p;
    wordy.notes = a.verbose ? 100'000 : 0;
    const watchdog bites_in_the_end(p.seed);
    sim::outcome o = sim::run(wordy);
    if (o.failure.empty() && p.what == sim::plan::kind::random) {
        o.failure = sim::tell_story(p.seed);
    }
    ++t.schedules;
    t.calls += o.calls;
    t.grants += o.grants;
    t.shared_grants += o.shared_grants;
    t.resumed += o.resumed;
    t.upgrades += o.upgrades;
    t.downgrades += o.downgrades;
    t.permits += o.permits;
    t.forced += o.forced;
    t.retentions += o.retentions;
    t.claims += o.claims;
    t.outlasting += o.outlasting;
    t.delays += o.delays;
    t.proofs += o.proofs;
    t.heard += o.heard;
    t.works += o.works;
    t.tasks += o.tasks;
    t.cancellations += o.cancellations;
    t.told += o.told;
    t.compactions += o.compactions;
    t.states += o.states;
    t.proclaimed += o.proclaimed;
    t.handed_out += o.handed_out;
    t.put_back += o.put_back;
    t.gathered += o.gathered;
    t.latches += o.latches;
    t.closings += o.closings;
    t.late_entries += o.late_entries;
    t.ends_told += o.ends_told;
    t.wakes += o.wakes;
    if (o.busiest > t.busiest) {
        t.busiest = o.busiest;
        t.busiest_seed = p.seed;
    }
    t.virtual_seconds += std::chrono::duration<double>(o.duration).count();
    for (std::size_t i = 0; i != o.faults.size(); ++i) {
        t.faults[i] += o.faults[i];
    }
    if (a.verbose) {
        show(o);
    }
    if (p.seed % 64 == 1 && o.failure.empty()) {
        ++t.replays;
        if (sim::run(p).trace != o.trace) {
            o.failure = "the same seed gave another history";
        }
    }
    if (a.trace) {
        std::printf("%llu %016llx\n",
                    static_cast<unsigned long long>(p.seed),
                    static_cast<unsigned long long>(o.trace));
    }
    if (!o.failure.empty()) {
        ++t.violations;
        std::cout << "VIOLATION, " << describe(p) << ": " << o.failure << '\n';
        if (!a.verbose && !a.first) {
            wordy.notes = 40;
            show(sim::run(wordy));
        }
        std::cout << std::flush;
    }
    return o;
}

/// One client is cancelled and crashes at every suspension, and every call of it fails in every
/// way.
void every_point(std::uint64_t seed, const arguments& a, totals& t) {
    constexpr std::uint64_t most = 2000;
    sim::plan p;
    p.seed = seed;
    p.keys_return = !a.new_keys;
    const std::uint64_t before = t.violations;
    const auto all_points = [&] {
        for (p.point = 1; p.point <= most && t.violations == before; ++p.point, ++t.points) {
            if (!examine(p, a, t).reached) {
                break;
            }
        }
    };
    p.what = sim::plan::kind::cancel_at;
    all_points();
    p.what = sim::plan::kind::answer_at;
    all_points();
    p.what = sim::plan::kind::crash_at;
    all_points();
    p.what = sim::plan::kind::fail_at;
    for (const sim::fault how : {sim::fault::request_lost,
                                 sim::fault::answer_lost,
                                 sim::fault::doubted,
                                 sim::fault::doubted_late,
                                 sim::fault::refused,
                                 sim::fault::broken,
                                 sim::fault::interrupted,
                                 sim::fault::late_duplicate,
                                 sim::fault::very_late}) {
        p.how = how;
        all_points();
    }
}

int simulate(const arguments& a) {
    using clock = std::chrono::steady_clock;
    const clock::time_point began = clock::now();
    const std::clock_t began_cpu = std::clock();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(clock::now() - began).count();
    };
    const auto worked = [&] {
        return static_cast<double>(std::clock() - began_cpu) / CLOCKS_PER_SEC;
    };
    totals t;
    const std::uint64_t enough = a.first ? 1 : 5; // violations
    std::uint64_t seed = a.seed;
    const auto more = [&] {
        return t.violations < enough && (a.runs != 0        ? seed < a.seed + a.runs
                                         : a.schedules != 0 ? t.schedules < a.schedules
                                                            : elapsed() < a.seconds);
    };
    for (; more(); ++seed) {
        sim::plan p;
        p.seed = seed;
        p.keys_return = !a.new_keys;
        if (!a.points) {
            examine(p, a, t);
        }
        if (a.points || (a.runs == 0 && seed % 1024 == 0)) {
            every_point(seed, a, t);
        }
    }
    const double took = elapsed();
    const double busy = worked();
    std::cout << "seeds " << a.seed << " to " << seed - 1 << "; " << t.schedules << " schedules in "
              << took << " s, " << static_cast<double>(t.schedules) / busy
              << " a second of the processor's, " << t.replays << " of them run twice\n"
              << t.calls << " calls, " << t.grants << " locks granted and " << t.resumed
              << " resumed, " << t.shared_grants << " shared or several (" << t.upgrades
              << " upgrades, " << t.downgrades << " downgrades), " << t.permits << " permits, "
              << t.claims << " claims (" << t.outlasting << " for so long at least), " << t.forced
              << " ends by force, " << t.retentions << " taken at home, " << t.delays << " delays, "
              << t.proofs << " proofs, " << t.heard << " requests heard, " << t.works
              << " works behind a gate, " << t.tasks << " tasks of groups, " << t.told
              << " changes told to watchers, " << t.compactions << " compactions, " << t.proclaimed
              << " values proclaimed, " << t.states << " states observed, " << t.handed_out
              << " values handed out by queues (" << t.put_back << " put back), " << t.gathered
              << " groups at barriers, " << t.latches << " latches, " << t.closings
              << " closings of barriers, " << t.cancellations << " cancellations, " << t.points
              << " points of cancellation and failure, " << t.virtual_seconds / 3600
              << " h of simulated time\n"
              << t.late_entries << " requests that came when their attempt was over; "
              << t.ends_told << " ends of keys told, " << t.wakes
              << " waiters woken by one\nthe busiest second of a client had " << t.busiest * 100
              << " % of the requests that it may have, with seed " << t.busiest_seed << "\nfaults:";
    for (std::size_t i = 0; i != t.faults.size(); ++i) {
        std::cout << ' ' << name(static_cast<sim::fault>(i)) << ' ' << t.faults[i];
    }
    std::cout << "\nviolations: " << t.violations << '\n';
    return t.violations == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    try {
        const arguments a = parse(argc, argv);
        if (a.shrink != 0) {
            sim::plan p;
            p.seed = a.shrink;
            p.keys_return = !a.new_keys;
            return sim::shrink(p, std::cout) ? 1 : 0;
        }
        return simulate(a);
    } catch (const std::invalid_argument& e) {
        std::cerr << "sim: " << e.what() << "\n\n" << usage;
        return 2;
    }
}
