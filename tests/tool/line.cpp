// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "tool/common.hpp"

// Lines as users write them: what runs is what stands there.

using namespace support;
using namespace tool_tests;

namespace {

/// What a COMMAND gets, each with a NUL behind it.
std::string passed_on(const std::string& name, const words& arguments) {
    words line{"lock", name, "--", "sh", "-c", "for a; do printf '%s\\0' \"$a\"; done", "sh"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    return run(line).output;
}

std::string with_nul(const words& all) {
    std::string text;
    for (const std::string& word : all) {
        text += word;
        text += '\0';
    }
    return text;
}

} // namespace

TEST_CASE("COMMAND gets its arguments as they were written", "[tool][line]") {
    const std::string name = unique_name("line");
    words odd{"",     "[a,b]", "[0-9]", "[]",  "[",  "]",      "--",    "--ttl", "3s",  "-v",
              "a\nb", "\n",    "{a,b}", "%%",  "++", "a=b",    "$(id)", "`id`",  "'",   "\"",
              "\\",   "\xff",  "\x01",  " a ", "-",  "--help", "lock",  "*",     "???", "\x7f"};
    for (char c = ' '; c <= '~'; ++c) {
        odd.emplace_back(1, c);
        odd.push_back(std::string("[") + c + "]");
    }
    CHECK(passed_on(name, odd) == with_nul(odd));
    const words many(10'000, "[a,b]");
    CHECK(passed_on(name, many) == with_nul(many));
}

TEST_CASE("No flag eats a name, a command or the -- in front of it", "[tool][line]") {
    const std::string name = unique_name("line"), url = shared_etcd().url();
    CHECK(run({"lock", name, "--endpoints", url, "--", "echo", "--ttl", "3s", "a"}).output ==
          "--ttl 3s a\n");
    CHECK(run({"lock", "--endpoints", url, name, "--", "echo", "file"}).output == "file\n");
    CHECK(run({"lock", name, "--endpoints", "--", "echo", "x"}).exit_code == 2);
    CHECK(run({"lock", name, "echo", "x"}).exit_code == 2); // not after --
    CHECK(run({"lock", name, "--"}).exit_code == 2);
    CHECK(run({"lock", name, "--try", "--timeout", "1s", "--", "true"}).exit_code == 2);
    CHECK(run({"elect", name, "--", "true"}).exit_code == 2);
    CHECK(run({"elect", name, "v", "--json", "--", "true"}).exit_code == 2);
    CHECK(run({"elect", "--listen", name, "--", "true"}).exit_code == 2);
    CHECK(run({"elect", name, "v", "--label", "l", "--", "true"}).exit_code == 2); // v is shown
    CHECK(run({"sem", name, "--set-limit", "3", "--", "true"}).exit_code == 2);
    for (const words& more : {words{"--limit", "2"},
                              {"--permits", "2"},
                              {"--try"},
                              {"--timeout", "1s"},
                              {"--label", "l"},
                              {"-v"}}) {
        words line{"sem", name, "--set-limit", "3"};
        line.insert(line.end(), more.begin(), more.end());
        CHECK(run(line).exit_code == 2);
    }
}

TEST_CASE("Flags of the connection that mean nothing alone are wrong usage", "[tool][line]") {
    const std::string odd = "/nowhere/\033[31mx";
    const std::vector<std::pair<words, std::string>> all{
        {{"--key", "x"}, "--cert and --key go together"},
        {{"--cert", "x"}, "--cert and --key go together"},
        {{"--password-file", "x"}, "--password-file: there is no --user"},
        {{"--command-timeout", "0"}, "--command-timeout: must be longer than 0"},
        {{"--dial-timeout", "0.1ms"}, "--dial-timeout: must be longer than 0"},
        {{"--cacert", odd}, "--cacert: \"/nowhere/?[31mx\""},
        {{"--cacert", "/dev/zero"}, "--cacert: \"/dev/zero\" is larger"}, // it never ends
        {{"--cert", "/dev/zero", "--key", odd}, "--cert: \"/dev/zero\" is larger"},
        {{"--user", "u", "--endpoints", "http://192.0.2.1:1"}, "or set --plain-text-password"},
        {{"--user", "u", "--password-file", ""}, "--password-file: is empty"},
        // Of a variable that is not set.
        {{"--user="}, "--user: is empty"},
        {{"--cacert", ""}, "--cacert: is empty"},
        {{"--cert", "", "--key", ""}, "--cert: is empty"},
        {{"--cert=x", "--key="}, "--key: is empty"},
        {{"--user", "u", "--password-file", odd}, "cannot read /nowhere/?[31mx: "},
    };
    for (const auto& [flags, why] : all) {
        CAPTURE(flags);
        words line{"sh", "-c", "exec \"$@\" 2>&1", "sh", COETCD_TOOL, "who", "n"};
        line.insert(line.end(), flags.begin(), flags.end());
        process_options how = with_etcd();
        how.environment.push_back("ETCDCTL_PASSWORD=secret");
        const auto r = run_process(line, how);
        CHECK(r.exit_code == 2);
        CHECK(r.output.find(why) != std::string::npos);
        CHECK(r.output.find('\033') == std::string::npos);
    }
    for (const std::string sub :
         {"lock n", "who n", "ask n", "unlock n --token 1", "top", "status"}) {
        const auto nothing = run_all(sub + " --");
        CHECK(nothing.exit_code == 2);
        CHECK(nothing.output.find(sub == "lock n"
                                      ? ": there is no COMMAND after --"
                                      : ": there is nothing after --") != std::string::npos);
    }
    CHECK(run_all("who n --endpoints HTTPS://127.0.0.1:1 --command-timeout 200ms").exit_code == 69);
    const std::string long_name(513, 'n');
    const std::vector<std::pair<std::string, std::string>> others{
        {"lock n --max-hold 0 -- true", "--max-hold: must be longer than 0"},
        {"ask n --ttl 0", "--ttl: must be longer than 0"},
        {"who " + long_name, "who: NAME: is longer than 512 bytes"},
        {"lock " + long_name + " -- true", "lock: NAME: is longer than 512 bytes"},
        {"sem n --set-limit 5 --grace 3s", "--set-limit takes no other flag of sem"},
        {"sem n --set-limit 5 --keep-password", "--set-limit takes no other flag of sem"},
        {"sem n --set-limit 5 --ttl 10s", "--set-limit takes no other flag of sem"},
        {"sem n --limit 1 --set-limit 5", "--set-limit takes no other flag of sem"},
        {"sem n --set-limit 5 --try=false", "--set-limit takes no other flag of sem"},
    };
    for (const auto& [arguments, why] : others) {
        CAPTURE(arguments);
        const auto r = run_all(arguments);
        CHECK(r.exit_code == 2);
        CHECK(r.output.find(why) != std::string::npos);
    }
}

TEST_CASE("Each subcommand takes its flags and names in any order", "[tool][line]") {
    const std::string name = unique_name("line"), url = shared_etcd().url();
    const words endpoints{"--endpoints", url};
    const std::vector<std::pair<std::vector<words>, int>> all{
        {{{"lock"}, {name}, endpoints, {"--label=[l]"}, {"--try"}, {"--", "echo", "[ran]"}}, 0},
        {{{"sem"}, {name + "s"}, endpoints, {"--limit", "2"}, {"-v"}, {"--", "echo", "[ran]"}}, 0},
        {{{"elect"}, {name + "e", "[v]"}, endpoints, {"--ttl", "5s"}, {"--", "echo", "[ran]"}}, 0},
        {{{"who"}, {name}, endpoints, {"--json"}}, 1},
        {{{"top"}, {name}, endpoints, {"--once"}, {"--sort", "token"}}, 0},
        {{{"ask"}, {name}, endpoints, {"--ttl", "5s"}}, 1},
        {{{"unlock"}, {name}, endpoints, {"--token", "1"}, {"--yes"}}, 1},
        {{{"status"}, endpoints, {"--json"}, {"--command-timeout=4s"}}, 0},
    };
    for (const auto& [parts, status] : all) {
        const bool runs = parts.back().front() == "--";
        std::vector<words> order(parts.begin() + 1, parts.end() - (runs ? 1 : 0));
        std::sort(order.begin(), order.end());
        do {
            words line = parts.front();
            for (const words& part : order) {
                line.insert(line.end(), part.begin(), part.end());
            }
            if (runs) {
                line.insert(line.end(), parts.back().begin(), parts.back().end());
            }
            CAPTURE(line);
            process_options nowhere; // the flag is what counts
            nowhere.environment = {"ETCDCTL_ENDPOINTS=127.0.0.1:1"};
            nowhere.capture = true;
            const auto r = run_process(command(line), nowhere);
            CHECK(r.exit_code == status);
            CHECK((!runs || r.output == "[ran]\n"));
        } while (std::next_permutation(order.begin(), order.end()));
    }
}

TEST_CASE("Names, labels and values are stored as they were written", "[tool][line]") {
    for (const std::string odd : {"[a,b]", "[]", "{x}", "a b", "$(id)", "%%x", "a\nb"}) {
        const std::string name = unique_name("line") + odd;
        CAPTURE(name);
        auto holder = start({"lock", name, "--label", odd});
        (void)next_line(holder);
        const auto found = who(name);
        CHECK(found["name"] == name);
        CHECK(found["holders"][0]["label"] == odd);
        holder.signal(SIGTERM);
        CHECK(holder.wait() == 0);
    }
    const std::string dash = "--" + unique_name("line"); // of another program
    put_place(dash, granted_lease(), "theirs");
    CHECK(run({"who", "--", dash}).exit_code == 0);
    const auto token =
        nlohmann::json::parse(run({"who", "--json", "--", dash}).output)["holders"][0]["token"];
    CHECK(run({"unlock", "--token", token.dump(), "--", dash}).exit_code == 0);
    CHECK(run({"who", "--", dash}).exit_code == 1);
}
