// SPDX-License-Identifier: BSL-1.0
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "support/temporary_file.hpp"
#include "tool/common.hpp"

using namespace std::chrono_literals;
using namespace support;
using namespace tool_tests;

TEST_CASE("lock runs a command under the lock, and ends as that does", "[tool]") {
    const std::string name = unique_name("tool");
    const std::string script = "echo $COETCD_LOCK_KEY $COETCD_FENCING_TOKEN $COETCD_LEASE; exit 3";
    const auto r = run({"lock", name, "--", "sh", "-c", script});
    CHECK(r.exit_code == 3);
    std::istringstream in(r.output);
    std::string key, lease;
    std::int64_t token = 0;
    in >> key >> token >> lease;
    CHECK(lease.size() == 16); // as etcdctl shows it
    CHECK(key.starts_with(name + "/write/" + lease.substr(lease.find_first_not_of('0'))));
    CHECK(token > 0);
    CHECK(run({"who", name}).exit_code == 1);
    CHECK(run({"lock", name, "--", "true"}).exit_code == 0);
    CHECK(run({"lock", name, "--", "sh", "-c", "kill -KILL $$"}).exit_code == 128 + SIGKILL);
    CHECK(run({"lock", name, "--", "/nowhere/at/all"}).exit_code == 127);
    CHECK(run({"lock", name, "--", "/tmp"}).exit_code == 126);
    CHECK(run({"lock", name, "--", "echo", "--try", "-v"}).output == "--try -v\n");
}

TEST_CASE("A command's end counts, though etcd cannot be told of it", "[tool]") {
    etcd_server away;
    const std::string pid = std::to_string(away.pid());
    // Its threads stop one after the other.
    const std::string script = "kill -STOP " + pid + "; while grep -h ^State /proc/" + pid +
                               "/task/*/status | grep -qv stopped; do :; done; exit 5";
    for (const std::string kind : {"lock", "sem", "elect"}) {
        // The same holds if the lease ends before the attempts to give it back do.
        for (const std::string times : {"--ttl 60s --command-timeout 1s", "--ttl 2s"}) {
            CAPTURE(kind, times);
            const std::string name = unique_name("tool"); // its key may stay
            const auto r =
                run_all(kind + " " + name + (kind == "elect" ? " v" : "") + " --endpoints " +
                        away.url() + " " + times + " -- sh -c '" + script + "'");
            away.resume();
            CHECK(r.exit_code == 5);
            CHECK(r.output.find("given back") != std::string::npos);
        }
    }
}

TEST_CASE("A command that ends after the lock was lost unseen counts as lost", "[tool]") {
    const std::string name = unique_name("tool");
    auto p = start({"lock", name, "--ttl", "2s", "--", "sh", "-c", "echo $$; exec sleep 300"});
    const int pid = std::stoi(next_line(p));
    p.signal(SIGSTOP);
    until("its lease has ended", [&] { return run({"who", name}).exit_code == 1; });
    ::kill(pid, SIGTERM);
    p.signal(SIGCONT);
    CHECK(p.wait() == 75);
}

TEST_CASE("What a command leaves behind does not outlive a lock that was lost", "[tool]") {
    const std::string name = unique_name("tool");
    const words line{"lock",
                     name,
                     "--ttl",
                     "2s",
                     "--",
                     "sh",
                     "-c",
                     "sleep 300 >&- 2>&- & echo $!; exec sleep 300"};
    auto p = start(line);
    const int left = std::stoi(next_line(p));
    std::ifstream stat("/proc/" + std::to_string(left) + "/stat");
    std::string number, program, state;
    int command = 0;
    REQUIRE((stat >> number >> program >> state >> command));
    p.signal(SIGSTOP);
    until("its lease has ended", [&] { return run({"who", name}).exit_code == 1; });
    ::kill(command, SIGTERM);
    until("it has ended", [&] { return has_ended(command); });
    CHECK_FALSE(has_ended(left));
    p.signal(SIGCONT);
    CHECK(p.wait() == 75);
    until("it is killed", [&] { return has_ended(left); });
}

TEST_CASE("A lock that was ended before its command was lost, as etcd tells", "[tool]") {
    const auto begun = [](const std::string& subcommand, const std::string& name) {
        words line{subcommand, name, "--ttl", "60s"};
        if (subcommand == "elect") {
            line.insert(line.begin() + 2, "us");
        }
        const words runs{"--", "sh", "-c", "sleep 300 >&- 2>&- & echo $!; exec sleep 300"};
        line.insert(line.end(), runs.begin(), runs.end());
        return start(line);
    };
    for (const std::string subcommand : {"lock", "elect", "sem"}) {
        for (const std::string way : {"unlock", "revoke"}) {
            for (const bool stands_still : {false, true}) {
                if (!stands_still && (subcommand != "sem" || way != "unlock")) {
                    continue; // it is noticed at once, or by a renewal that may come in between
                }
                CAPTURE(subcommand, way, stands_still);
                const std::string name = unique_name("tool");
                auto p = begun(subcommand, name);
                const int left = std::stoi(next_line(p));
                std::ifstream stat("/proc/" + std::to_string(left) + "/stat");
                std::string number, program, state;
                int command = 0;
                REQUIRE((stat >> number >> program >> state >> command));
                const auto held = who(name)["holders"][0];
                if (stands_still) {
                    p.signal(SIGSTOP);
                }
                if (way == "unlock") {
                    CHECK(run({"unlock", name, "--token", held["token"].dump()}).exit_code == 0);
                } else {
                    const auto lease = held["lease"].get<std::string>();
                    REQUIRE(shared_etcd().etcdctl({"lease", "revoke", lease}).exit_code == 0);
                }
                ::kill(command, SIGTERM);
                if (stands_still) {
                    until("it has ended", [&] { return has_ended(command); });
                    p.signal(SIGCONT);
                }
                CHECK(p.wait() == 75);
                until("what it has left is killed", [&] { return has_ended(left); });
            }
        }
    }
}

TEST_CASE("lock and etcdctl lock exclude each other", "[tool][etcdctl]") {
    const std::string name = unique_name("tool");
    {
        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        REQUIRE(theirs.read_line(10s));
        CHECK(run({"lock", name, "--try", "--", "true"}).exit_code == 1);
        auto ours = start({"lock", name, "--", "echo", "ours"});
        until("it waits", [&] { return waiting_for(name) == 1; });
        theirs.signal(SIGINT);
        CHECK(next_line(ours) == "ours");
        CHECK(ours.wait() == 0);
    }
    auto ours = start({"lock", name});
    CHECK(next_line(ours).starts_with(name + "/"));
    auto theirs = shared_etcd().background_etcdctl({"lock", name, "--", "echo", "theirs"});
    until("it waits", [&] { return waiting_for(name) == 1; });
    ours.signal(SIGTERM);
    CHECK(ours.wait() == 0);
    CHECK(theirs.read_line(10s) == "theirs");
    CHECK(theirs.wait() == 0);
}

TEST_CASE("--try does not wait, --timeout waits for so long", "[tool]") {
    const std::string name = unique_name("tool");
    auto holder = start({"lock", name});
    (void)next_line(holder);
    const auto start_of_one = clock_type::now();
    CHECK(run({"lock", name, "--try", "--", "true"}).exit_code == 1);
    const auto of_itself = clock_type::now() - start_of_one; // what it takes without a wait
    for (const char* flag : {"1500ms", "1.5s", "1.5", "1s500ms"}) {
        const auto began = clock_type::now();
        CHECK(run({"lock", name, "--timeout", flag, "--", "true"}).exit_code == 1);
        const auto took = clock_type::now() - began;
        CHECK(took >= 1500ms);
        CHECK(took < 2500ms + 3 * of_itself);
    }
    CHECK(waiting_for(name) == 0);
    holder.signal(SIGINT);
    CHECK(holder.wait() == 0);
    CHECK(run({"lock", name, "--timeout", "1s", "--", "true"}).exit_code == 0);
    for (const char* wrong : {"soon", "1x", "-1s", ""}) {
        CHECK(run({"lock", name, "--timeout", wrong, "--", "true"}).exit_code == 2);
    }
}

TEST_CASE("Readers share a lock, writers do not", "[tool]") {
    const std::string name = unique_name("tool");
    auto one = start({"lock", name, "--shared"});
    (void)next_line(one);
    auto two = start({"lock", name, "--shared"});
    (void)next_line(two);
    CHECK(who(name)["holders"].size() == 2);
    one.signal(SIGTERM);
    CHECK(one.wait() == 0);
    CHECK(run({"lock", name, "--shared", "--try", "--", "true"}).exit_code == 0);
    CHECK(run({"lock", name, "--try", "--", "true"}).exit_code == 1);
    two.signal(SIGTERM);
    CHECK(two.wait() == 0);
    auto alone = start({"lock", name});
    (void)next_line(alone);
    CHECK(run({"lock", name, "--shared", "--try", "--", "true"}).exit_code == 1);
    CHECK(run({"lock", name, "--try", "--", "true"}).exit_code == 1);
}

TEST_CASE("who tells of keys that are in the way of a lock", "[tool]") {
    const std::string name = unique_name("tool");
    REQUIRE(shared_etcd().etcdctl({"put", name + "/photo", "x"}).exit_code == 0);
    const auto found = who(name);
    CHECK(found["holders"].empty());
    CHECK(found["strays"] == nlohmann::json{name + "/photo"});
    REQUIRE(shared_etcd().etcdctl({"put", name + "/second", "x"}).exit_code == 0);
    const auto text = run_all("who " + name).output;
    CHECK(text.find(name + "/photo: ") != std::string::npos);
    CHECK(text.find(name + "/second: ") != std::string::npos);
    const auto waited = run_all("lock " + name + " -v --timeout 200ms -- true");
    CHECK(waited.exit_code == 1);
    CHECK(waited.output.find(name + "/second: is nobody's place") != std::string::npos);
    const auto asked = run_all("ask " + name);
    CHECK(asked.exit_code == 1);
    CHECK(asked.output.find(name + ": nobody has it") != std::string::npos);
    auto reader = start({"lock", name, "--shared"});
    (void)next_line(reader);
    const auto reads = run_all("ask " + name);
    CHECK(reads.exit_code == 1);
    CHECK(reads.output.find(name + "/photo: is nobody's place") != std::string::npos);
}

TEST_CASE("who does not take a lock for another one that is called NAME.since.", "[tool]") {
    const std::string name = unique_name("tool");
    auto other = start({"lock", name + ".since.x", "--label", "other"});
    (void)next_line(other);
    CHECK(run({"who", name}).exit_code == 1);
    const auto free = run_all("lock " + name + " --try -v -- true");
    CHECK(free.exit_code == 0);
    CHECK(free.output.empty());
    auto real = start({"lock", name, "--label", "real"});
    (void)next_line(real);
    until("it tells since when", [&] { return who(name)["holders"][0].contains("since"); });
    CHECK(who(name)["holders"][0]["label"] == "real");
    CHECK(who(name + ".since.x")["holders"][0]["label"] == "other");
}

TEST_CASE("ask asks no holder of a semaphore, which hears no requests", "[tool]") {
    const std::string name = unique_name("tool");
    auto first = start({"sem", name});
    (void)next_line(first);
    auto second = start({"sem", name});
    until("it waits", [&] { return waiting_for(name) == 1; });
    auto third = start({"sem", name});
    until("it waits", [&] { return waiting_for(name) == 2; });
    first.signal(SIGTERM);
    CHECK(first.wait() == 0);
    (void)next_line(second); // its permit is younger than the third one's place
    const auto asked = run_all("ask " + name);
    CHECK(asked.exit_code == 1);
    CHECK(asked.output.find(name + ": is a semaphore") != std::string::npos);
}

TEST_CASE("unlock ends no key that is no place in a queue", "[tool]") {
    const std::string name = unique_name("tool");
    auto& etcd = shared_etcd();
    const std::pair<std::string, std::string> strays[] = {
        {"/photo", "wants the lock alone waits"},
        {"/write/photo", "wants no permits waits"},
        {"/hold/photo", "wants the lock alone waits"},
        {"/hold/00/photo", "wants the lock alone, or more permits than it leaves, waits"},
        {"/wait/photo", "wants the lock alone, or permits, waits"},
    };
    for (const auto& [below, who_waits] : strays) {
        const std::string key = name + below;
        REQUIRE(etcd.etcdctl({"put", key, "x"}).exit_code == 0);
        const auto read = nlohmann::json::parse(etcd.etcdctl({"get", key, "-w", "json"}).output);
        const std::string token = read["kvs"][0]["create_revision"].dump();
        const auto r = run_all("unlock " + name + " --token " + token);
        CHECK(r.exit_code == 1);
        CHECK(r.output.find(key + ": is nobody's place") != std::string::npos);
        const auto shown = run_all("who " + name);
        CHECK(shown.output.find(key + ": is nobody's place") != std::string::npos);
        CHECK(shown.output.find(who_waits) != std::string::npos);
        CHECK(etcd.etcdctl({"get", key}).output.find("x") != std::string::npos);
        CHECK(etcd.etcdctl({"del", key}).exit_code == 0);
    }
}

TEST_CASE("who and top tell of an election whose name ends as the lines of a lock do", "[tool]") {
    const std::string prefix = unique_name("tool");
    for (const std::string end : {"/read", "/write", "/keep", "/wait", "/hold/00"}) {
        CAPTURE(end);
        const std::string name = prefix + end;
        auto leader = start({"elect", name, "somebody"});
        (void)next_line(leader);
        until("it is told of", [&] {
            const auto found = run({"top", name, "--json"}).output;
            return found.find('"' + name + '"') != std::string::npos;
        });
        const auto found = who(name);
        REQUIRE(found["holders"].size() == 1);
        CHECK(found["holders"][0]["label"] == "somebody");
        leader.signal(SIGTERM);
        CHECK(leader.wait() == 0);
    }
}

TEST_CASE("A name server that does not answer holds up no end", "[tool][dns]") {
    const temporary_file names("coetcd-resolv");
    std::ofstream(names.path()) << "nameserver 127.0.0.9\n";
    const std::string bind = "mount --bind " + names.path().string() + " /etc/resolv.conf";
    if (run_process({"unshare", "-mn", "sh", "-c", bind + " && command -v ip && command -v nft"})
            .exit_code != 0) {
        std::cout << "skipped: a name server that does not answer: it needs root, ip and nft\n";
        return;
    }
    const std::string script =
        "ip link set lo up && nft add table inet t &&"
        " nft 'add chain inet t in { type filter hook input priority 0; }' &&"
        " nft add rule inet t in udp dport 53 drop && " +
        bind + " && exec " + COETCD_TOOL +
        " who n --endpoints name.example:2379 --dial-timeout 500ms --command-timeout 1s";
    const auto began = clock_type::now();
    const auto r = run_process({"unshare", "-mn", "sh", "-c", script});
    CHECK(r.exit_code == 69);
    CHECK(clock_type::now() - began < 8s); // it takes ten to say that it has no answer
}

TEST_CASE("Signals go to the command, and its end is ours", "[tool]") {
    const std::string name = unique_name("tool");
    const std::string script = "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; "
                               "while :; do sleep 0.05; done";
    auto p = start({"lock", name, "--", "sh", "-c", script});
    CHECK(next_line(p) == "ready");
    p.signal(SIGUSR1);
    CHECK(next_line(p) == "usr1");
    CHECK(p.running());
    p.signal(SIGTERM);
    CHECK(next_line(p) == "term");
    CHECK(p.wait() == 5);
    auto q = start({"lock", name, "--", "sh", "-c", "echo ready; exec sleep 100"});
    CHECK(next_line(q) == "ready");
    q.signal(SIGHUP);
    CHECK(q.wait() == 128 + SIGHUP);
    CHECK(run({"who", name}).exit_code == 1);
}

TEST_CASE("A signal that is ignored stays so, here and in the command", "[tool]") {
    const std::string name = unique_name("tool");
    process_options how = with_etcd();
    const std::string tool = COETCD_TOOL;
    background_process p(
        {"sh",
         "-c",
         "trap '' HUP INT; exec " + tool + " lock " + name +
             " -- sh -c 'trap \"echo term; exit 4\" TERM; kill -HUP $$; kill -INT $$; "
             "echo ready; while :; do sleep 0.05; done'"},
        how);
    CHECK(next_line(p) == "ready");
    p.signal(SIGHUP);
    p.signal(SIGINT);
    p.signal(SIGTERM);
    CHECK(next_line(p) == "term");
    CHECK(p.wait() == 4);
}

TEST_CASE("A signal while it waits ends the wait, and leaves no key", "[tool]") {
    const std::string name = unique_name("tool");
    auto holder = start({"lock", name, "--ttl", "60s"});
    (void)next_line(holder);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
        CAPTURE(number);
        auto p = start({"lock", name, "--ttl", "60s", "--", "true"});
        until("it waits", [&] { return waiting_for(name) == 1; });
        p.signal(number);
        CHECK(p.wait() == 128 + number);
        CHECK(waiting_for(name) == 0);
    }
    holder.signal(SIGHUP);
    CHECK(holder.wait() == 0);
    CHECK(run({"who", name}).exit_code == 1);
}

TEST_CASE("A signal that is blocked stays so in the command, and hides no end of it", "[tool]") {
    const words blocks{"env", "--block-signal=CHLD", "--block-signal=USR1"};
    words line =
        command({"lock", unique_name("tool"), "--", "grep", "SigBlk", "/proc/self/status"});
    line.insert(line.begin(), blocks.begin(), blocks.end());
    const auto r = run_process(line, with_etcd());
    CHECK(r.exit_code == 0);
    CHECK(r.output == "SigBlk:\t0000000000010200\n");
}

TEST_CASE("A command does not outlive a coetcd that is killed", "[tool]") {
    const std::string name = unique_name("tool");
    auto p = start({"lock", name, "--ttl", "2s", "--", "sh", "-c", "echo $$; exec sleep 100"});
    const int pid = std::stoi(next_line(p));
    p.signal(SIGKILL);
    (void)p.wait();
    until("the command ends", [&] { return has_ended(pid); });
    CHECK(run({"lock", name, "--timeout", "10s", "--", "true"}).exit_code == 0);
}

TEST_CASE("What is lost stops the command: SIGTERM, and after --grace SIGKILL", "[tool]") {
    const std::string name = unique_name("tool");
    for (const bool obeys : {true, false}) {
        const std::string trap = obeys ? "trap 'echo term; exit 0' TERM; " : "trap '' TERM; ";
        const std::string script = trap + "echo $COETCD_LEASE $$; while :; do sleep 0.05; done";
        auto p = start({"lock", name, "--ttl", "3s", "--grace", "4s", "--", "sh", "-c", script});
        std::istringstream in(next_line(p));
        std::string lease;
        int pid = 0;
        in >> lease >> pid;
        const auto began = clock_type::now(); // it may hear of it before etcdctl has ended
        REQUIRE(shared_etcd().etcdctl({"lease", "revoke", lease}).exit_code == 0);
        if (obeys) {
            CHECK(next_line(p) == "term");
        }
        CHECK(p.wait() == 75);
        CHECK(has_ended(pid));
        CHECK((clock_type::now() - began >= 4s) == !obeys);
    }
}

TEST_CASE("unlock ends an ownership at once, and the command with it", "[tool]") {
    const std::string script = "echo $COETCD_FENCING_TOKEN; exec sleep 100";
    const words command{"--ttl", "60s", "--", "sh", "-c", script};
    for (const words& kind : {words{"lock"}, {"lock", "--shared"}, {"elect", "leader"}, {"sem"}}) {
        CAPTURE(kind);
        const std::string name = unique_name("tool");
        words arguments{kind[0], name};
        arguments.insert(arguments.end(), kind.begin() + 1, kind.end());
        arguments.insert(arguments.end(), command.begin(), command.end());
        if (kind[0] == "sem") {
            arguments[3] = "6s"; // it hears of it with the next renewal
        }
        auto p = start(arguments);
        const std::string token = next_line(p);
        CHECK(run({"unlock", name, "--token", "1"}).exit_code == 1);
        CHECK(p.running());
        const auto began = clock_type::now();
        CHECK(run({"unlock", name, "--token", token}).exit_code == 0);
        CHECK(p.wait() == 75);
        CHECK(clock_type::now() - began < 10s); // long before the next renewal
        CHECK(run({"unlock", name, "--token", token}).exit_code == 1);
        CHECK(run({"unlock", name}).exit_code == 2);
    }
}

TEST_CASE("A coetcd that stood still past its ttl stops its command when it goes on", "[tool]") {
    const std::string name = unique_name("tool");
    auto p = start({"lock", name, "--ttl", "2s", "--", "sh", "-c", "echo $$; exec sleep 100"});
    const int pid = std::stoi(next_line(p));
    p.signal(SIGSTOP);
    const auto other = run({"lock", name, "--timeout", "20s", "--", "echo", "other"});
    CHECK(other.output == "other\n");
    CHECK(!has_ended(pid)); // it could not be told
    p.signal(SIGCONT);
    CHECK(p.wait() == 75);
    CHECK(has_ended(pid));
}

TEST_CASE("--max-hold stops the command in time", "[tool]") {
    const std::string name = unique_name("tool");
    for (const char* mode : {"", "--shared"}) {
        words all{"lock", name, "--max-hold", "500ms", "--", "sleep", "100"};
        if (*mode != '\0') {
            all.insert(all.begin() + 2, mode);
        }
        const auto began = clock_type::now();
        CHECK(run(all).exit_code == 75);
        CHECK(clock_type::now() - began < 10s);
    }
}

TEST_CASE("A command that ended within --max-hold was not stopped, though we stood still",
          "[tool]") {
    const std::string name = unique_name("tool");
    auto p = start({"lock",
                    name,
                    "--max-hold",
                    "1s",
                    "--ttl",
                    "60s",
                    "--",
                    "sh",
                    "-c",
                    "echo $$; exec sleep 300"});
    const int pid = std::stoi(next_line(p));
    const auto began = clock_type::now();
    p.signal(SIGSTOP);
    ::kill(pid, SIGTERM); // status 143
    until("it has ended, and the time is over",
          [&] { return has_ended(pid) && clock_type::now() - began > 1s; });
    p.signal(SIGCONT);
    CHECK(p.wait() == 128 + SIGTERM);
}

TEST_CASE("--max-hold gives nothing back before the command has stopped", "[tool]") {
    const std::string name = unique_name("tool");
    const temporary_file file("coetcd-tool");
    const std::string said = file.path().string();
    const std::string script = "trap 'sleep 1; echo first >>" + said +
                               "; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    auto first = start({"lock", name, "--max-hold", "500ms", "--", "sh", "-c", script});
    CHECK(next_line(first) == "ready");
    auto second = start({"lock", name, "--", "sh", "-c", "echo second >>" + said});
    CHECK(first.wait() == 75);
    CHECK(second.wait() == 0);
    std::ifstream in(said);
    std::string one, two;
    in >> one >> two;
    CHECK(one == "first");
    CHECK(two == "second");
    const auto alone = run_all("lock " + name + " --max-hold 300ms");
    CHECK(alone.exit_code == 75);
    CHECK(alone.output.find(name + ": --max-hold is over") != std::string::npos);
    CHECK(run({"lock", name, "--max-hold", "10s", "--", "sh", "-c", "exit 3"}).exit_code == 3);
}

TEST_CASE("An output that cannot be written is an error, and holds nothing", "[tool]") {
    const std::string name = unique_name("tool");
    CHECK(run_all("lock " + name + " >/dev/full").exit_code == 74);
    CHECK(run({"who", name}).exit_code == 1);
    auto holder = start({"lock", name});
    (void)next_line(holder);
    CHECK(run_all("top " + name + " --once >/dev/full").exit_code == 74);
    CHECK(run_all("who " + name + " --json >/dev/full").exit_code == 74);
    const std::string tool = COETCD_TOOL;
    const auto closed = run_process(
        {"bash", "-c", "set -o pipefail; " + tool + " elect --listen " + name + " 2>/dev/null | :"},
        with_etcd());
    CHECK(closed.exit_code == 74);
}

TEST_CASE("A standard descriptor that is closed is nothing else's", "[tool]") {
    const std::string name = unique_name("tool");
    const std::string tool = COETCD_TOOL;
    const auto said = run_process({"sh", "-c", tool + " lock " + name + " 2>&1 >&-"}, with_etcd());
    CHECK(said.output.find("Bad file descriptor") != std::string::npos);
    CHECK(said.exit_code == 74);
    for (const std::string which : {"0<&-", "1>&-", "2>&-"}) { // nor the command's
        const std::string script = "test ! -e /proc/$$/fd/" + which.substr(0, 1);
        const std::string line = tool + " lock " + name + " -- sh -c '" + script + "' " + which;
        CHECK(run_process({"sh", "-c", line}, with_etcd()).exit_code == 0);
    }
}

TEST_CASE("A command that a semaphore's limit refuses does not store the limit", "[tool]") {
    const std::string name = unique_name("tool");
    const auto refused = run_all("sem " + name + " --permits 2 -- true");
    CHECK(refused.exit_code == 69);
    CHECK(refused.output.find("--permits 2 is more than the limit, 1") != std::string::npos);
    CHECK(run({"sem", name, "--permits", "3", "--limit", "2", "--", "true"}).exit_code == 69);
    CHECK(shared_etcd().etcdctl({"get", "--prefix", name}).output.empty());
    CHECK(run({"sem", name, "--permits", "2", "--limit", "5", "--", "echo", "in"}).output ==
          "in\n");
    CHECK(run({"sem", name, "--permits", "5", "--", "echo", "in"}).output ==
          "in\n"); // it is stored
}

TEST_CASE("sem lets so many in", "[tool]") {
    const std::string name = unique_name("tool");
    auto one = start({"sem", name, "--limit", "2"});
    (void)next_line(one);
    auto two = start({"sem", name, "--limit", "7"}); // the first one has said it
    (void)next_line(two);
    CHECK(run({"sem", name, "--try", "--", "true"}).exit_code == 1);
    CHECK(run({"sem", name, "--timeout", "300ms", "--", "true"}).exit_code == 1);
    auto third = start({"sem", name, "--permits", "2", "--label", "the third", "--", "true"});
    until("it waits", [&] { return waiting_for(name) == 1; });
    CHECK(who(name)["waiters"][0]["permits"] == 2);
    CHECK(who(name)["waiters"][0]["label"] == "the third");
    CHECK(run({"who", name}).output.find("waits   the third  token") != std::string::npos);
    third.signal(SIGTERM);
    CHECK(third.wait() == 128 + SIGTERM);
    const auto now = who(name);
    CHECK(now["holders"].size() == 2);
    CHECK(now["holders"][0]["permits"] == 1);
    two.signal(SIGTERM);
    CHECK(two.wait() == 0);
    CHECK(run({"sem", name, "--", "echo", "in"}).output == "in\n");
    CHECK(run({"sem", name, "--permits", "3", "--", "true"}).exit_code == 69);
    CHECK(run({"sem", name, "--set-limit", "3"}).exit_code == 0);
    CHECK(run({"sem", name, "--set-limit", "-1"}).exit_code == 2);
    CHECK(run({"sem", name, "--permits", "2", "--", "echo", "in"}).output == "in\n");
    CHECK(run({"sem", name, "--set-limit", "0"}).exit_code == 0); // takes none away
    CHECK(who(name)["holders"].size() == 1);
    CHECK(run({"sem", name, "--try", "--", "true"}).exit_code == 69);
}

TEST_CASE("ask asks the holder for the lock, and the request stands", "[tool]") {
    const std::string name = unique_name("tool");
    CHECK(run({"ask", name}).exit_code == 1);
    auto holder = start({"lock", name});
    (void)next_line(holder);
    const auto asked = run({"ask", name, "--ttl", "60s"});
    CHECK(asked.exit_code == 0);
    CHECK(asked.output == who(name)["holders"][0]["token"].dump() + "\n");
    const auto request = shared_etcd().etcdctl({"get", "--prefix", name + ".ask/", "--keys-only"});
    CHECK(request.output.find(name + ".ask/") != std::string::npos);
    CHECK(holder.running()); // a command may not be asked
}

TEST_CASE("--timeout says a word when it is over", "[tool]") {
    const std::string name = unique_name("tool");
    auto holder = start({"lock", name});
    (void)next_line(holder);
    auto full = start({"sem", name + "s"});
    (void)next_line(full);
    for (const std::string how : {"lock ", "lock --shared ", "sem "}) {
        const std::string of = how == "sem " ? name + "s" : name;
        const auto r = run_all(how + of + " --timeout 200ms -- true");
        CHECK(r.exit_code == 1);
        CHECK(r.output.find(of + ": was not to be had within --timeout") != std::string::npos);
        CHECK(run_all(how + of + " --try -- true").output.empty()); // as `||` of a shell wants it
    }
}

TEST_CASE("-v says once why an endpoint cannot be connected to", "[tool]") {
    const std::string nobody = " --endpoints 127.0.0.1:1 --command-timeout 500ms -- true";
    const std::string line = "coetcd: http://127.0.0.1:1: Connection refused\n";
    const std::string told = run_all("lock refused -v" + nobody).output;
    CHECK(told.rfind(line, 0) == 0);
    CHECK(told.find(line, 1) == told.npos);
    CHECK(run_all("lock refused" + nobody).output.find(line) == told.npos);
}

TEST_CASE("top and who tell since when a lock is held, also with --once", "[tool]") {
    const std::string prefix = unique_name("tool") + "/";
    const std::string theirs = unique_name("a-name-that-is-longer-than-the-column-was");
    auto lock = start({"lock",
                       prefix + "lock",
                       "--label",
                       std::string(150, 'h'),
                       "--",
                       "sh",
                       "-c",
                       "echo; sleep 100"});
    auto sem = start({"sem", prefix + "sem"});
    auto elect = start({"elect", prefix + "elect", "value"});
    put_place(prefix + theirs + std::string(150, 'n'), granted_lease(), "theirs");
    for (auto* each : {&lock, &sem, &elect}) {
        (void)next_line(*each);
    }
    for (const char* name : {"lock", "sem", "elect"}) {
        until("it is stored", [&] { return who(prefix + name)["holders"][0].contains("since"); });
        CHECK(run({"who", prefix + name}).output.find("  for ") != std::string::npos);
    }
    const std::string table = run({"top", prefix, "--once"}).output;
    CHECK(table.find(std::string(150, 'h') + " ") != std::string::npos); // nothing is cut
    CHECK(table.find(std::string(150, 'n') + " ") != std::string::npos);
    std::istringstream lines(table);
    std::string line;
    std::getline(lines, line);
    const std::size_t since = line.find("SINCE");
    while (std::getline(lines, line)) {
        const bool is_told = std::isdigit(static_cast<unsigned char>(line[since])) != 0;
        CHECK(is_told == (line.find(theirs) == line.npos));
    }
    CHECK(who(prefix + "lock")["strays"].is_null());
    const std::string far = unique_name("tool");
    put_place(far, granted_lease("8999999999"), "theirs");
    CHECK(run({"top", far, "--once"}).output.find(" 2499999h ") !=
          std::string::npos); // the whole number
}

TEST_CASE("top shows locks whose names begin with PREFIX, and no others", "[tool]") {
    const std::string name = unique_name("tool");
    auto writer = start({"lock", name});
    (void)next_line(writer);
    auto reader = start({"lock", name, "--shared"});
    until("it waits", [&] { return waiting_for(name) == 1; });
    auto leader = start({"elect", name + "/db/write", "us"});
    (void)next_line(leader);
    const auto names = [&](const std::string& prefix) {
        std::istringstream lines(run({"top", prefix, "--json"}).output);
        std::vector<std::string> all;
        for (std::string line; std::getline(lines, line);) {
            all.push_back(
                nlohmann::json::parse(line)["name"].get<std::string>().substr(name.size()));
        }
        return all;
    };
    CHECK(names(name) == words{"", "/db/write"});
    CHECK(names(name + "/db") == words{"/db/write"});
    for (const std::string end : {"/", "/re", "/w", "/write/", "/db/write/"}) {
        CAPTURE(end);
        CHECK(names(name + end) == (end == "/" ? words{"/db/write"} : words{}));
    }
}

TEST_CASE("elect --listen takes no other key for a leader's", "[tool]") {
    const std::string name = unique_name("tool");
    auto news = start({"elect", "--listen", name});
    CHECK(next_line(news) == "nobody");
    REQUIRE(shared_etcd().etcdctl({"put", name + "/photo", "x"}).exit_code == 0);
    auto reader = start({"lock", name, "--shared", "--label", "reads"});
    (void)next_line(reader);
    auto candidate = start({"elect", name, "us", "--", "sleep", "300"});
    until("it waits", [&] { return waiting_for(name) == 1; });
    REQUIRE(shared_etcd().etcdctl({"del", name + "/photo"}).exit_code == 0);
    reader.signal(SIGTERM);
    CHECK(next_line(news) == "us");
    candidate.signal(SIGTERM);
    CHECK(next_line(news) == "nobody");
}

TEST_CASE("elect leads, and elect --listen tells of each leader", "[tool]") {
    const std::string name = unique_name("tool");
    auto news = start({"elect", "--listen", name});
    CHECK(next_line(news) == "nobody");
    auto one = start({"elect", name, "one"});
    CHECK(next_line(one).starts_with(name + "/"));
    CHECK(next_line(news) == "one");
    auto two = start({"elect", name, "two", "--", "sh", "-c", "echo leads; exec sleep 100"});
    until("it waits", [&] { return waiting_for(name) == 1; });
    one.signal(SIGTERM);
    CHECK(one.wait() == 0);
    CHECK(next_line(two) == "leads");
    CHECK(next_line(news) == "two");
    two.signal(SIGTERM);
    CHECK(two.wait() == 128 + SIGTERM);
    CHECK(next_line(news) == "nobody");
    auto in_json = start({"elect", "--listen", "--json", name});
    CHECK(nlohmann::json::parse(next_line(in_json))["leader"].is_null());
    CHECK(run({"elect", name}).exit_code == 2);
}

TEST_CASE("who and top tell who has what, and who waits", "[tool]") {
    const std::string prefix = unique_name("tool") + "/";
    auto holder = start({"lock", prefix + "b", "--label", "the \033[31mholder"});
    (void)next_line(holder);
    auto waiter = start({"lock", prefix + "b", "--label", "the waiter", "--", "true"});
    until("it waits", [&] { return waiting_for(prefix + "b") == 1; });
    auto other = start({"lock", prefix + "a"});
    (void)next_line(other);
    const auto text = run({"who", prefix + "b"});
    CHECK(text.exit_code == 0);
    CHECK(text.output.find("the ?[31mholder") != std::string::npos);
    CHECK(text.output.find("the waiter") != std::string::npos);
    CHECK(text.output.find('\033') == std::string::npos);
    const auto table = run({"top", prefix, "--once"}).output;
    CHECK(std::count(table.begin(), table.end(), '\n') == 3);
    CHECK(table.find(prefix + "a") < table.find(prefix + "b"));
    CHECK(table.find('\033') == std::string::npos);
    const auto sorted = run({"top", prefix, "--once", "--sort", "waiters"}).output;
    CHECK(sorted.find(prefix + "a") > sorted.find(prefix + "b"));
    std::istringstream lines(run({"top", prefix, "--json"}).output);
    std::size_t n = 0;
    for (std::string line; std::getline(lines, line); ++n) {
        CHECK(nlohmann::json::parse(line)["holders"].size() == 1);
    }
    CHECK(n == 2);
}

TEST_CASE("status tells how each member is", "[tool]") {
    const auto text = run({"status"});
    CHECK(text.exit_code == 0);
    CHECK(text.output.find(shared_etcd().url()) != std::string::npos);
    CHECK(text.output.find("  leader  ") != std::string::npos);
    const auto in_json = nlohmann::json::parse(run({"status", "--json"}).output);
    CHECK(in_json["role"] == "leader");
    CHECK(in_json["db_size"] > 0);
    CHECK(in_json["errors"].empty());
    const std::string both = shared_etcd().url() + ",127.0.0.1:1";
    const auto half = run({"status", "--endpoints", both, "--command-timeout", "500ms"});
    CHECK(half.exit_code == 69);
    CHECK(half.output.find("  leader  ") != std::string::npos);
    CHECK(std::count(half.output.begin(), half.output.end(), '\n') == 3);
}

TEST_CASE("status asks all members at once", "[tool]") {
    boost::asio::io_context context;
    boost::asio::ip::tcp::acceptor silent(
        context, {boost::asio::ip::address_v4::loopback(), 0}); // it never answers
    const std::string one = "127.0.0.1:" + std::to_string(silent.local_endpoint().port());
    std::string all = one;
    for (int i = 1; i != 20; ++i) {
        all += "," + one;
    }
    const auto began = std::chrono::steady_clock::now();
    const auto answer = run({"status", "--endpoints", all, "--command-timeout", "1s"});
    CHECK(answer.exit_code == 69);
    CHECK(std::count(answer.output.begin(), answer.output.end(), '\n') == 21);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(15)); // not 20
}

TEST_CASE("A second signal ends it while it gives back, unless that comes at once", "[tool]") {
    support::etcd_server own;
    support::background_process p(command({"lock", "n"}), with_etcd(own));
    (void)next_line(p);
    own.pause();
    const auto began = clock_type::now();
    until("it has ended", [&] {
        p.signal(SIGTERM);
        return !p.running();
    });
    CHECK(p.wait() == 128 + SIGTERM);
    CHECK(clock_type::now() - began >= std::chrono::milliseconds(500));
}

TEST_CASE("The signal that has ended a command is the first one", "[tool]") {
    support::etcd_server own;
    support::background_process p(
        command({"lock", "n", "--", "sh", "-c", "echo $$; exec sleep 60"}), with_etcd(own));
    const int pid = std::stoi(next_line(p));
    own.pause();
    const auto began = clock_type::now();
    p.signal(SIGTERM);
    until("the command has ended, and another signal counts", [&] {
        return has_ended(pid) && clock_type::now() - began > std::chrono::milliseconds(600);
    });
    p.signal(SIGTERM);
    CHECK(p.wait() == 128 + SIGTERM);
    CHECK(clock_type::now() - began < std::chrono::seconds(4)); // not 6 and more
}

TEST_CASE("A signal that ends a command is no second one, whatever the command got before",
          "[tool]") {
    const std::string name = unique_name("tool");
    for (const int before : {SIGHUP, SIGUSR1, SIGINT}) {
        auto holder = start({"lock",
                             name,
                             "--ttl",
                             "60",
                             "--",
                             "sh",
                             "-c",
                             "trap : HUP USR1 INT; trap 'exit 7' TERM; echo ready;"
                             " while :; do sleep .01; done"});
        (void)next_line(holder);
        const auto began = clock_type::now();
        holder.signal(before);
        until("another signal would count",
              [&] { return clock_type::now() - began > std::chrono::milliseconds(600); });
        holder.signal(SIGTERM);
        CHECK(holder.wait() == 7);
        CHECK(run({"lock", name, "--try", "--", "true"}).exit_code == 0); // it was given back
    }
}

TEST_CASE("Two signals at once let it give its place back", "[tool]") {
    const std::string name = unique_name("tool");
    auto holder = start({"lock", name});
    (void)next_line(holder);
    for (int i = 0; i != 10; ++i) {
        auto waiter = start({"lock", name, "--ttl", "60"});
        until("it waits", [&] { return waiting_for(name) == 1; });
        waiter.signal(SIGTERM);
        waiter.signal(SIGTERM);
        CHECK(waiter.wait() == 128 + SIGTERM);
        until("its place is gone", [&] { return waiting_for(name) == 0; });
    }
    support::etcd_server own;
    support::background_process first(command({"lock", "n"}), with_etcd(own));
    (void)next_line(first);
    support::background_process waiter(command({"lock", "n"}), with_etcd(own));
    until("it waits", [&] {
        const auto queue = run_process(command({"who", "n", "--json"}), with_etcd(own)).output;
        return nlohmann::json::parse(queue)["waiters"].size() == 1;
    });
    own.pause();
    const auto began = clock_type::now();
    until("no signal would count", [&] {
        waiter.signal(SIGTERM);
        return clock_type::now() - began > std::chrono::milliseconds(400);
    });
    CHECK(waiter.wait() == 128 + SIGTERM);
    CHECK(clock_type::now() - began >= std::chrono::milliseconds(500));
}

TEST_CASE("With -v it takes no longer to find out that etcd does not answer", "[tool]") {
    boost::asio::io_context context;
    boost::asio::ip::tcp::acceptor silent(
        context, {boost::asio::ip::address_v4::loopback(), 0}); // it never answers
    const std::string one = "127.0.0.1:" + std::to_string(silent.local_endpoint().port());
    const auto began = std::chrono::steady_clock::now();
    const auto r = run_all("lock n -v --command-timeout 5s --endpoints " + one + " -- true");
    CHECK(r.exit_code == 69);
    CHECK(r.output.find("n: who has it is not known: ") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));
}

TEST_CASE("A password that is given as to etcdctl is not shown", "[tool]") {
    for (const std::string line : {"--password=s3cret who x", "who x --password=s3cret"}) {
        const auto r = run_all(line);
        CHECK(r.exit_code == 2);
        CHECK(r.output.find("no such flag") != std::string::npos);
        CHECK(r.output.find("s3cret") == std::string::npos);
    }
}

TEST_CASE("Wrong usage, and an etcd that is not there, have statuses of their own", "[tool]") {
    CHECK(run({}).exit_code == 2);
    CHECK(run({"lock"}).exit_code == 2);
    CHECK(run({"lock", "x", "--tries"}).exit_code == 2);
    CHECK(run({"lock", "x", "--user", "root:secret", "--", "true"}).exit_code == 2);
    for (const std::string sub :
         {"lock", "sem", "who", "ask", "elect --listen", "unlock --token 1"}) {
        CHECK(run_all(sub + " ''").output.find("NAME: is empty\n") != std::string::npos);
    }
    CHECK(run({"--help"}).exit_code == 0);
    CHECK(run({"lock", "--help"}).output.find("--max-hold") != std::string::npos);
    const auto away = run_all("lock x --endpoints 127.0.0.1:1 --command-timeout 500ms -- true");
    CHECK(away.exit_code == 69);
    CHECK(away.output.find("127.0.0.1:1") != std::string::npos);
    const auto secret = run_all("lock x --user somebody --password-file /nowhere -- true");
    CHECK(secret.exit_code == 2);
    CHECK(secret.output.find("/nowhere") != std::string::npos);
    const auto none = run_all("lock x --user somebody -- true </dev/null");
    CHECK(none.output.find("--password-file") != std::string::npos);
}

TEST_CASE("Of two hundred processes each runs once, in the order of their keys", "[tool][crowd]") {
    const std::string name = unique_name("tool");
    const temporary_file file("coetcd-tool");
    const std::string script = "echo $COETCD_FENCING_TOKEN >>" + file.path().string();
    auto gate = start({"lock", name});
    (void)next_line(gate);
    std::vector<background_process> all;
    for (int i = 0; i != 200; ++i) {
        all.push_back(start({"lock", name, "--ttl", "60s", "--", "sh", "-c", script}));
    }
    until(
        "all wait", [&] { return waiting_for(name) == 200; }, 120s);
    gate.signal(SIGTERM);
    for (auto& p : all) {
        CHECK(p.wait() == 0);
    }
    std::ifstream in(file.path());
    std::vector<std::int64_t> tokens;
    for (std::int64_t t = 0; in >> t;) {
        tokens.push_back(t);
    }
    CHECK(tokens.size() == 200);
    CHECK(std::is_sorted(tokens.begin(), tokens.end(), std::less_equal<>()));
}

namespace {

/// A terminal of 100 columns and 20 lines in which the command runs, as tmux shows it.
class tmux_session {
public:
    explicit tmux_session(const std::string& arguments) {
        const std::string line = std::string(COETCD_TOOL) + ' ' + arguments;
        REQUIRE(with({"new-session", "-d", "-x", "100", "-y", "20", line}).exit_code == 0);
    }
    ~tmux_session() { (void)with({"kill-server"}); }
    tmux_session(const tmux_session&) = delete;
    tmux_session& operator=(const tmux_session&) = delete;

    static bool is_to_be_had() {
        return run_process({"sh", "-c", "command -v tmux >/dev/null"}).exit_code == 0;
    }
    process_result with(words more) const {
        const words tmux{"tmux", "-u", "-L", name_};
        more.insert(more.begin(), tmux.begin(), tmux.end());
        return run_process(more, with_etcd());
    }
    std::string screen() const { return with({"capture-pane", "-p"}).output; }

private:
    const std::string name_ = unique_name("coetcd");
};

} // namespace

TEST_CASE("top follows what happens, on a terminal", "[tool][tmux]") {
    if (!tmux_session::is_to_be_had()) {
        std::cout << "skipped: top on a terminal: there is no tmux\n";
        return;
    }
    const std::string prefix = unique_name("tool") + "/";
    const tmux_session tmux("top " + prefix);
    until("it is there", [&] { return tmux.screen().find("0 locks") != std::string::npos; });
    auto holder = start({"lock", prefix + "x", "--label", "somebody"});
    (void)next_line(holder);
    until("the lock is shown", [&] {
        const std::string now = tmux.screen();
        return now.find(prefix + "x") != std::string::npos &&
               now.find("somebody") != std::string::npos &&
               now.find("1 locks") != std::string::npos;
    });
    auto waiter = start({"lock", prefix + "x", "--", "true"});
    until("the waiter is shown",
          [&] { return tmux.screen().find("1 waiters") != std::string::npos; });
    REQUIRE(tmux.with({"resize-window", "-x", "60", "-y", "10"}).exit_code == 0);
    until("the table fits", [&] {
        const std::string now = tmux.screen();
        return std::count(now.begin(), now.end(), '\n') == 10 &&
               now.find("q: quit") != std::string::npos;
    });
    holder.signal(SIGTERM);
    until("all is gone", [&] { return tmux.screen().find("0 locks") != std::string::npos; });
    {
        const tmux_session other("top " + prefix);
        const int pid = std::stoi(other.with({"display-message", "-p", "#{pane_pid}"}).output);
        (void)other.with({"kill-server"}); // it gets several signals
        until("it ends with its terminal", [&] { return has_ended(pid); });
    }
    REQUIRE(tmux.with({"send-keys", "q"}).exit_code == 0);
    until("it ends", [&] { return tmux.with({"has-session"}).exit_code != 0; });
}

TEST_CASE("top tells of leases again when etcd does", "[tool][tmux]") {
    if (!tmux_session::is_to_be_had()) {
        std::cout << "skipped: top on a terminal: there is no tmux\n";
        return;
    }
    etcd_server stands;
    for (const std::string name : {"x", "x2", "x3"}) { // several are asked for at once
        std::istringstream said(stands.etcdctl({"lease", "grant", "900"}).output);
        std::string word, lease;
        said >> word >> lease;
        const auto put =
            stands.etcdctl({"put", "--lease=" + lease, name + "/" + lease, "somebody"});
        REQUIRE(put.exit_code == 0);
    }
    const tmux_session tmux("top x --command-timeout 500ms --endpoints " + stands.url());
    const auto shows = [&](const char* what) {
        return tmux.screen().find(what) != std::string::npos;
    };
    until("it is there", [&] { return shows("somebody"); });
    stands.pause();
    until("it says what is wrong", [&] { return shows("! lease_time_to_live"); });
    stands.resume();
    until("it is well again", [&] { return shows("somebody") && !shows("! "); });
}

TEST_CASE("top shows a lock in one line, whatever its name is", "[tool][tmux]") {
    if (!tmux_session::is_to_be_had()) {
        std::cout << "skipped: top on a terminal: there is no tmux\n";
        return;
    }
    const std::string prefix = unique_name("tool") + "/", lease = granted_lease();
    std::string wide;
    for (int i = 0; i != 90; ++i) {
        wide += "\xe6\xbc\xa2"; // takes two columns
    }
    put_place(prefix + "a", lease, "first");
    for (const std::string id : {"b", "c", "d"}) {
        put_place(prefix + id + wide, lease, wide);
    }
    const tmux_session tmux("top " + prefix);
    std::vector<std::string> lines;
    until("it is there", [&] {
        std::istringstream all(tmux.screen());
        lines.clear();
        for (std::string line; std::getline(all, line);) {
            lines.push_back(line);
        }
        return lines.size() == 20 && lines[19].starts_with("4 locks");
    });
    CHECK(lines[0].starts_with("NAME"));
    CHECK(lines[1].starts_with(prefix + "a "));
    for (const std::size_t i : {2U, 3U, 4U}) {
        CHECK(lines[i].starts_with(prefix));
        CHECK(lines[i].ends_with(" 0")); // its waiters
    }
    CHECK(lines[5].empty());
}
