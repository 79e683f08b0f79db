// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "tool/common.hpp"
#include "tool/typed_session.hpp"

// What others have put into etcd is text, whatever it looks like.

using namespace support;
using namespace tool_tests;
namespace fs = std::filesystem;

namespace {

/// A directory of its own, removed in the end.
struct own_directory {
    fs::path path = fs::temp_directory_path() / unique_name("hostile");
    own_directory() { fs::create_directory(path); }
    ~own_directory() { fs::remove_all(path); }
    own_directory(const own_directory&) = delete;
    own_directory& operator=(const own_directory&) = delete;
};

bool is_ascii(const std::string& text) {
    return std::all_of(
        text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); });
}

/// A bash that waits for keys, with the completion.
class typing {
public:
    typing()
        : bash_({"bash", "--norc", "--noprofile", "-i"},
                {"PS1=$ ",
                 "TERM=dumb",
                 "ETCDCTL_ENDPOINTS=" + shared_etcd().url(),
                 "PATH=" + fs::path(COETCD_TOOL).parent_path().string() + ":" +
                     std::getenv("PATH")}) {
        bash_.type("source '" COETCD_COMPLETION "'; complete -F _coetcd shown\n"
                   "shown() { printf '<%s>' \"$@\"; echo enough; }\n");
        (void)completed("");
    }

    /// The words of a line of which TAB has completed the last one, each in `<>`; then `<END>`. If
    /// it is not completed, END is a part of it.
    std::string completed(const std::string& line) {
        bash_.type("shown " + line + "\tEND\n");
        const std::string read = bash_.read_until(">enough");
        return read.substr(read.rfind("\n<") + 1);
    }

    /// Types TAB twice behind something, and clears the line.
    void try_behind(const std::string& line) {
        bash_.type(line + "\t\t\x15"
                          "shown\n");
        (void)bash_.read_until("<>enough");
    }

private:
    typed_session bash_;
};

} // namespace

TEST_CASE("TAB runs nothing that is in the name of a lock", "[tool][completion]") {
    const own_directory here;
    const std::string file = (here.path / "ran").string(), prefix = unique_name("c"),
                      lease = granted_lease();
    for (const std::string& evil : {"$(>" + file + ")",
                                    "`>" + file + "`",
                                    "x;>" + file + ";",
                                    "x\n>" + file + "\n",
                                    "${x[$(>" + file + ")]}",
                                    "a[$(>" + file + ")]",
                                    "<(>" + file + ")",
                                    std::string("'$(>") + file + ")'",
                                    std::string("\"name\":\"") + prefix + "-forged"}) {
        put_place(prefix + evil, lease, "\"name\":\"" + prefix + "-label\"");
    }
    put_place(prefix + "-one/of.2_x", lease, "$(>" + file + ")");
    put_place(prefix + " spaced", lease, "");
    put_place(prefix + "*", lease, "");
    put_place(prefix + "\x1b[31m", lease, "");
    typing bash;
    for (const std::string sub :
         {"who", "lock", "unlock", "top", "ask"}) { // the only one that is offered
        CHECK(bash.completed(sub + " " + prefix) ==
              "<" + sub + "><" + prefix + "-one/of.2_x><END>enough");
    }
    const words beginnings{
        prefix + "$(", "'" + prefix, "\"" + prefix, prefix + "`", prefix + "\\", "-", "--", ""};
    for (const std::string& typed : beginnings) {
        CAPTURE(typed);
        bash.try_behind("shown who " + typed);
    }
    CHECK_FALSE(fs::exists(file));
}

TEST_CASE("TAB completes what there is", "[tool][completion]") {
    typing bash;
    CHECK(bash.completed("sta") == "<status><END>enough");
    CHECK(bash.completed("lock n --max") == "<lock><n><--max-hold><END>enough");
    CHECK(bash.completed("top x --sort wai") == "<top><x><--sort><waiters><END>enough");
    CHECK(bash.completed("lock n --nothing") == "<lock><n><--nothingEND>enough");
    // All flags of each subcommand, as it names them itself.
    for (const std::string sub :
         {"lock", "elect", "sem", "top", "who", "ask", "unlock", "status"}) {
        std::istringstream help(run({sub, "--help"}).output);
        for (std::string line; std::getline(help, line);) {
            const std::size_t at = line.find("--");
            if (line.rfind("  ", 0) != 0 || at > 6) {
                continue;
            }
            const std::string flag = line.substr(at, line.find(' ', at) - at);
            CAPTURE(sub, flag);
            CHECK(bash.completed(sub + " n " + flag) ==
                  "<" + sub + "><n><" + flag + "><END>enough");
        }
    }
}

TEST_CASE("JSON is ASCII, whatever is in etcd", "[tool][json]") {
    const std::string prefix = unique_name("j"), lease = granted_lease();
    const std::vector<std::string> odd{"\xc2\x9b"
                                       "31mred", // U+009B, which begins a sequence
                                       "\xe2\x80\xae"
                                       "abc",              // U+202E
                                       "\xe2\x80\xa8",     // ends a line
                                       "\xf3\xa0\x81\x81", // U+E0041, a tag
                                       "\x1b]0;title\x07",
                                       "bad\xff\xfe",
                                       "\xed\xa0\x80", // half of a pair
                                       "\x7f",
                                       "\xe6\xbc\xa2"};
    for (const std::string& text : odd) {
        put_place(prefix + text, lease, "label " + text);
    }
    const auto table = run({"top", prefix, "--json"});
    CHECK(table.exit_code == 0);
    CHECK(is_ascii(table.output));
    CHECK(std::count(table.output.begin(), table.output.end(), '\n') ==
          static_cast<std::ptrdiff_t>(odd.size()));
    for (const std::string& text : odd) {
        const auto r = run({"who", prefix + text, "--json"});
        CHECK(r.exit_code == 0);
        CHECK(is_ascii(r.output));
        const auto j = nlohmann::json::parse(r.output);
        CHECK(j["holders"][0]["lease"] == lease);
        if (text == odd[0]) { // as it is
            CHECK(j["name"] == prefix + text);
            CHECK(j["holders"][0]["label"] == "label " + text);
        }
        CHECK(run({"who", prefix + text}).output.find("\xc2\x9b") == std::string::npos);
    }
}

TEST_CASE("elect --listen tells of any key and any value", "[tool][json]") {
    const std::string name = unique_name("j") + "\xff\xc2\x9b";
    auto news = start({"elect", "--listen", "--json", name});
    CHECK(next_line(news) == R"({"leader":null})");
    const std::string value = "\xc2\x9b"
                              "31m\xfe" +
                              std::string(1000, 'v');
    auto leader = start({"elect", name, value});
    (void)next_line(leader);
    const std::string line = next_line(news);
    CHECK(is_ascii(line));
    const auto j = nlohmann::json::parse(line);
    CHECK(j["leader"] == "\xc2\x9b"
                         "31m\xef\xbf\xbd" +
                             std::string(1000, 'v'));
    CHECK(news.running());
    leader.signal(SIGTERM);
    CHECK(leader.wait() == 0);
    CHECK(next_line(news) == R"({"leader":null})");
}

TEST_CASE("top, who and lock -v stand large values of others", "[tool][large]") {
    const std::string prefix = unique_name("big") + "/", lease = granted_lease();
    // Together with their base64 each of the answers is larger than a client accepts.
    const std::string put = "head -c $1 /dev/zero | tr '\\0' x | etcdctl "
                            "put --lease=" +
                            lease + " \"$2\" >/dev/null";
    const auto puts = [&](const std::string& bytes, const std::string& key) {
        process_options how = with_etcd();
        how.environment.push_back("ETCDCTL_API=3");
        REQUIRE(run_process({"sh", "-c", put, "sh", bytes, key}, how).exit_code == 0);
    };
    for (const char* key : {"q/read/", "q/write/", "q/keep/", "q/"}) {
        puts("1000000", prefix + key + lease);
        puts("1000000", prefix + key + lease + "-1-0");
    }
    const auto named = run({"who", prefix + "q", "--json"});
    CHECK(named.exit_code == 0);
    CHECK(nlohmann::json::parse(named.output)["holders"].size() >= 1);
    CHECK(run({"who", prefix + "q"}).exit_code == 0);
    const auto table = run({"top", prefix, "--once"});
    CHECK(table.exit_code == 0);
    CHECK(table.output.find(prefix + "q ") != std::string::npos);
    CHECK(run({"lock", prefix + "q", "-v", "--try", "--", "true"}).exit_code == 1);
}
