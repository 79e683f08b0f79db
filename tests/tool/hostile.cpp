// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/base64.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "support/temporary_file.hpp"
#include "tool/common.hpp"
#include "tool/in_between.hpp"
#include "tool/typed_session.hpp"

// What others have put into etcd is text, whatever it looks like.

using namespace support;
using namespace tool_tests;
namespace asio = boost::asio;
namespace fs = std::filesystem;
using namespace std::chrono_literals;
using asio::ip::tcp;

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

/// In front of etcd, and answers some requests by itself: all reads, if nothing is said.
class no_reads final : public in_between {
public:
    explicit no_reads(std::string answer, const std::string& path = "/v3/kv/range")
        : answer_(std::move(answer))
        , begins_("POST " + path + ' ') {
        start();
    }
    ~no_reads() override { stop(); }

private:
    asio::awaitable<void> serve(socket client, std::string begins) override {
        if (!begins.starts_with(begins_)) {
            auto passing = pass_all(client, std::move(begins));
            co_await std::move(passing);
            co_return;
        }
        const auto all = asio::buffer(answer_);
        co_await asio::async_write(*client, all, asio::use_awaitable);
    }

    const std::string answer_, begins_;
};

/// In front of etcd, and tells of keys below a name, ever more of them.
class inventor final : public in_between {
public:
    explicit inventor(std::string name)
        : name_(std::move(name)) {
        start();
    }
    ~inventor() override { stop(); }

private:
    asio::awaitable<void> serve(socket client, std::string begins) override {
        if (!begins.starts_with("POST /v3/kv/range ")) {
            auto passing = pass_all(client, std::move(begins));
            co_await std::move(passing);
            co_return;
        }
        nlohmann::json page{
            {"header",
             {{"cluster_id", "1"}, {"member_id", "1"}, {"revision", "9"}, {"raft_term", "1"}}},
            {"more", true}};
        for (int i = 0; i != 700; ++i) {
            std::string key;
            const std::string next = std::to_string(1'000'000 + next_++);
            coetcd::detail::wire::append_base64(key, name_ + "/" + next);
            const std::string label(4000, 'A');
            page["kvs"].push_back({{"key", key}, {"value", label}, {"lease", "7"}});
        }
        const std::string body = page.dump();
        const std::string answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                   "Content-Length: " +
                                   std::to_string(body.size()) + "\r\n\r\n" + body;
        const auto all = asio::buffer(answer);
        co_await asio::async_write(*client, all, asio::use_awaitable);
    }

    const std::string name_;
    int next_ = 0;
};

/// Grants no lease, and does not answer reads.
class no_sessions final : public in_between {
public:
    no_sessions() { start(); }
    ~no_sessions() override { stop(); }

private:
    asio::awaitable<void> serve(socket client, std::string begins) override {
        if (begins.starts_with("POST /v3/kv/range ")) {
            co_return; // it is asked again
        }
        const std::string said = "etcdserver: mvcc: database space exceeded";
        const std::string body =
            nlohmann::json{{"error", said}, {"message", said}, {"code", 8}}.dump();
        const std::string answer = "HTTP/1.1 429 Too Many Requests\r\n"
                                   "Content-Type: application/json\r\nContent-Length: " +
                                   std::to_string(body.size()) + "\r\n\r\n" + body;
        const auto all = asio::buffer(answer);
        co_await asio::async_write(*client, all, asio::use_awaitable);
    }
};

/// A bash that waits for keys, with the completion.
class typing {
public:
    explicit typing(const std::string& first = "")
        : bash_({"bash", "--norc", "--noprofile", "-i"},
                {"PS1=$ ",
                 "TERM=dumb",
                 "ETCDCTL_ENDPOINTS=" + shared_etcd().url(),
                 "PATH=" + fs::path(COETCD_TOOL).parent_path().string() + ":" +
                     std::getenv("PATH")}) {
        bash_.type(first + "source '" COETCD_COMPLETION "'; complete -F _coetcd shown\n"
                           "shown() { printf '<%s>' \"$@\"; echo enough; }\n");
        (void)completed("");
    }

    /// The words of a line of which TAB has completed the last one, each in `<>`; then `<END>`. If
    /// it is not completed, END is a part of it.
    std::string completed(const std::string& line) {
        bash_.type("shown " + line + "\tEND\n");
        std::string read = bash_.read_until(">enough");
        read.erase(std::remove(read.begin(), read.end(), '\r'), read.end());
        return read.substr(read.rfind("\n<") + 1);
    }

    /// What a line prints.
    std::string result_of(const std::string& line) {
        bash_.type("echo beg\"\"un; " + line + "; echo enou\"\"gh\n");
        (void)bash_.read_until("begun");
        std::string read = bash_.read_until("enough");
        read.erase(std::remove(read.begin(), read.end(), '\r'), read.end());
        read.erase(read.rfind("enough"));
        return read.substr(1, read.size() - 2); // without the ends of lines around it
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
    // What a flag's value is comes from its user, and is no name of a subcommand.
    CHECK(bash.completed("lock --ttl ") == "<lock><--ttl><END>enough");
    CHECK(bash.completed("lock --ttl=") == "<lock><--ttl=END>enough");
    CHECK(bash.completed("top --sort=wai") == "<top><--sort=waiters><END>enough");
    CHECK(bash.completed("--user lock sta") == "<--user><lock><status><END>enough");
    // Only bash takes these for several words.
    CHECK(bash.completed("--endpoints 127.0.0.1:2379 sta") ==
          "<--endpoints><127.0.0.1:2379><status><END>enough");
    CHECK(bash.completed("--endpoints=a:1,b:2 sta") == "<--endpoints=a:1,b:2><status><END>enough");
    CHECK(bash.completed("lock --label a:b=c n --max") ==
          "<lock><--label><a:b=c><n><--max-hold><END>enough");
    // Names, wherever they are.
    const std::string name = unique_name("typed");
    const std::string lease = granted_lease();
    put_place(name, lease, "x");
    for (const std::string before : {"elect --listen ", "who -- ", "unlock --token 5 "}) {
        CHECK(bash.completed(before + name.substr(0, name.size() - 1)).find(name + "><END>") !=
              std::string::npos);
    }
    // Nothing ends a shell that ends with the first command that fails.
    typing strict("set -e\n");
    CHECK(strict.completed("lock n --max") == "<lock><n><--max-hold><END>enough");
    CHECK(strict.completed("lock --nothing") == "<lock><--nothingEND>enough");
    CHECK(strict.completed("who ~") == "<who><~END>enough");
    CHECK(strict.completed("lock n -- no-such-comm") == "<lock><n><--><no-such-commEND>enough");
    CHECK(strict.completed("lock --ttl ") == "<lock><--ttl><END>enough");
    CHECK(strict.completed("sta") == "<status><END>enough");
    // Files, whatever they are called.
    const own_directory here;
    const std::string file = here.path / "one\nname, $(and) not two";
    std::ofstream(file) << "";
    CHECK(bash.completed("lock --key " + (here.path / "on").string()) ==
          "<lock><--key><" + file + "><END>enough");
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

TEST_CASE("elect --listen says why an endpoint cannot be connected to", "[tool]") {
    const std::string nowhere = "http://127.0.0.1:1";
    const words line = command({"elect", "--listen", "--endpoints", nowhere, "n"});
    words all{"sh", "-c", "exec \"$@\" 2>&1", "sh"};
    all.insert(all.end(), line.begin(), line.end());
    support::background_process p(all, with_etcd());
    const std::string said = next_line(p);
    CHECK(said.find(nowhere + ": Connection refused") != std::string::npos);
    p.signal(SIGTERM);
    CHECK(p.wait() == 128 + SIGTERM);
}

TEST_CASE("elect --listen says that what answers is no etcd", "[tool]") {
    const no_reads other("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>");
    const words line =
        command({"elect", "--listen", "--endpoints", other.url(), "--command-timeout", "1s", "n"});
    words all{"sh", "-c", "exec \"$@\" 2>&1", "sh"};
    all.insert(all.end(), line.begin(), line.end());
    support::background_process p(all, with_etcd());
    const std::string said = next_line(p);
    CHECK(said.find("no answer was one of etcd's JSON gateway") != std::string::npos);
    CHECK(said.find("still waiting") != std::string::npos);
    CHECK(p.running());
    p.signal(SIGTERM);
    CHECK(p.wait() == 128 + SIGTERM);
}

TEST_CASE("elect --listen that is refused, or stopped, does not say that it waits", "[tool]") {
    const no_reads refuses("HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\n"
                           "Content-Length: 34\r\n\r\n"
                           R"({"code":7,"message":"not for you"})");
    const auto refused = run_all("elect --listen n --endpoints " + refuses.url());
    CHECK(refused.exit_code == 69);
    CHECK(refused.output.find("waiting") == std::string::npos);

    const no_reads silent("");
    const std::string tool = COETCD_TOOL;
    const std::string line = "timeout -s INT 1 " + tool + " elect --listen n --endpoints ";
    const auto stopped =
        run_process({"sh", "-c", line + silent.url() + " --command-timeout 60s 2>&1"}, with_etcd());
    CHECK(stopped.exit_code == 124);
    CHECK(stopped.output.find("waiting") == std::string::npos);
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
        puts("1000000", prefix + key + lease + "-1-0");
    }
    for (const char* key : {"q/read/", "q/write/", "q/keep/", "q/"}) {
        puts("1000000", prefix + key + lease);
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

TEST_CASE("lock -v goes on if it cannot read who has it", "[tool][large]") {
    const words answers{
        "403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 33\r\n\r\n"
        R"({"code":7,"message":"not for you"})",
        "200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n{",
    };
    for (const std::string& answer : answers) {
        CAPTURE(answer);
        const no_reads etcd("HTTP/1.1 " + answer);
        const std::string of = " --endpoints " + etcd.url() + " ", name = unique_name("blind");
        CHECK(run_all("who" + of + name).exit_code == 69); // it has nothing else to say
        const auto r = run_all("lock -v" + of + name + " -- echo ran");
        CHECK(r.exit_code == 0);
        CHECK(r.output.find(name + ": who has it is not known: ") == 8); // behind coetcd:
        CHECK(r.output.ends_with("\nran\n"));
    }
}

TEST_CASE("lock -v waits no longer for who has it than a second", "[tool]") {
    const no_reads silent(""); // says nothing, and closes: it is asked again and again
    const std::string name = unique_name("slow"), others = " --command-timeout 60s ";
    const std::string of = "timeout 30 '" COETCD_TOOL "' lock -v --endpoints " + silent.url();
    for (const std::string wait : {"--try ", "--timeout 5s ", ""}) {
        const std::string line = of + others + wait + name + " -- echo ran 2>&1";
        const auto r = run_process({"sh", "-c", line}, with_etcd());
        CHECK(r.exit_code == 0);
        CHECK(r.output.find(name + ": who has it is not known: etcd has not told it in time\n") !=
              std::string::npos);
        CHECK(r.output.ends_with("ran\n"));
    }
    // That second is no part of --timeout.
    const std::string line = of + others + "--timeout 300ms " + name + " -- echo ran 2>&1";
    CHECK(run_process({"sh", "-c", line}, with_etcd()).exit_code == 0);
}

TEST_CASE("lock -v does not wait for who has it if there is no session", "[tool]") {
    const no_sessions etcd;
    const std::string line = "timeout 30 '" COETCD_TOOL "' lock -v --endpoints " + etcd.url() +
                             " --command-timeout 60s " + unique_name("none") + " -- echo ran 2>&1";
    const auto r = run_process({"sh", "-c", line}, with_etcd());
    CHECK(r.exit_code == 69);
    CHECK(r.output.find("space exceeded") != std::string::npos);
    CHECK(r.output.find("is not known") == std::string::npos);
}

TEST_CASE("Keys without end are read no further than to a limit", "[tool][hostile]") {
    const std::string name = unique_name("many");
    const inventor etcd(name);
    const std::string of = " --endpoints " + etcd.url() + " ";
    const auto r = run_all("who" + of + name);
    CHECK(r.exit_code == 69);
    CAPTURE(r.output.substr(0, 300));
    CHECK(r.output.find("range: more than 64 MiB of keys and labels") != std::string::npos);
}

/// A pipe with a name that is full, and that nobody reads.
class full_pipe {
public:
    full_pipe()
        : path_(place_.path().string() + ".pipe") {
        REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
        fd_ = ::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
        REQUIRE(fd_ >= 0);
        const std::string filling(4096, 'x');
        for (std::size_t size = filling.size(); size != 0; size /= 2) {
            while (::write(fd_, filling.data(), size) > 0) {
            }
        }
    }
    ~full_pipe() {
        ::close(fd_);
        ::unlink(path_.c_str());
    }
    full_pipe(const full_pipe&) = delete;
    full_pipe& operator=(const full_pipe&) = delete;

    const std::string& path() const { return path_; }
    /// Reads what is there.
    std::string drained() {
        std::string all;
        char some[4096];
        for (ssize_t n = 0; (n = ::read(fd_, some, sizeof some)) > 0;) {
            all.append(some, static_cast<std::size_t>(n));
        }
        return all;
    }

    /// Runs the command, and has it write there.
    support::background_process
    start(const std::string& output, const words& arguments, const support::etcd_server& etcd) {
        words all{"sh", "-c", "exec \"$@\" " + output + ">\"$0\"", path_};
        const words line = command(arguments);
        all.insert(all.end(), line.begin(), line.end());
        return support::background_process(all, with_etcd(etcd));
    }

private:
    const temporary_file place_{"coetcd-tool"};
    const std::string path_;
    int fd_ = -1;
};

std::ptrdiff_t threads_of(pid_t pid) {
    std::error_code gone;
    const fs::directory_iterator all("/proc/" + std::to_string(pid) + "/task", gone);
    return gone ? 0 : std::distance(begin(all), end(all));
}

/// One of the masks of signals of a process, as `SigBlk:` or `SigCgt:`.
class signal_mask {
public:
    signal_mask(pid_t pid, const std::string& mask) {
        std::ifstream in("/proc/" + std::to_string(pid) + "/status");
        for (std::string line; std::getline(in, line);) {
            if (line.starts_with(mask)) {
                bits_ = std::stoull(line.substr(mask.size()), nullptr, 16);
            }
        }
    }
    bool has(int number) const { return (bits_ >> (number - 1) & 1U) != 0; }

private:
    std::uint64_t bits_ = 0;
};
/// Whether all is done but its last words. While it starts a thread it blocks every signal.
bool only_speaks(pid_t pid) {
    const signal_mask blocked(pid, "SigBlk:");
    return blocked.has(SIGTERM) && !blocked.has(SIGCHLD);
}
/// Whether a process waits in the kernel, for a reader of what it writes.
bool sleeps(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string number, program, state;
    return (in >> number >> program >> state) && state == "S";
}

TEST_CASE("A loss stops the command although nobody reads the standard error", "[tool]") {
    support::etcd_server etcd;
    full_pipe unread;
    auto p = unread.start("2",
                          {"lock",
                           unique_name("unread"),
                           "-v",
                           "--ttl",
                           "2s",
                           "--grace",
                           "500ms",
                           "--",
                           "sh",
                           "-c",
                           "echo $$; exec sleep 300"},
                          etcd);
    const int pid = std::stoi(next_line(p));
    etcd.kill(); // it wants to say so
    CHECK(p.wait_for(20s) == 75);
    CHECK(has_ended(pid));
}

TEST_CASE("A loss is noticed although nobody reads the standard output", "[tool]") {
    const std::string name = unique_name("unread");
    full_pipe unread;
    auto p = unread.start("", {"lock", name}, support::shared_etcd());
    until("it has the lock", [&] { return run({"who", name}).exit_code == 0; });
    const std::string token = who(name)["holders"][0]["token"].dump();
    CHECK(run({"unlock", name, "--token", token, "--yes"}).exit_code == 0);
    CHECK(p.wait_for(20s) == 75);
}

TEST_CASE("A signal ends what nobody reads, with its own status", "[tool]") {
    for (const words& arguments : {words{"who", "nobody", "--json"},
                                   words{"top", "--once"},
                                   words{"status"},
                                   words{"elect", "nobody", "--listen"}}) {
        CAPTURE(arguments);
        full_pipe unread;
        auto p = unread.start("", arguments, support::shared_etcd());
        until("it writes", [&] { return threads_of(p.pid()) > 1; });
        p.signal(SIGTERM);
        CHECK(p.wait_for(20s) == 128 + SIGTERM);
    }
}

TEST_CASE("What has ended keeps its status while its last words are not read", "[tool]") {
    const std::string name = unique_name("unread");
    auto holder = start({"lock", name, "--", "sh", "-c", "echo has; exec sleep 300"});
    CHECK(next_line(holder) == "has");
    for (const words& arguments :
         {words{"lock", name, "-v", "--try", "--", "true"}, words{"who", unique_name("nobody")}}) {
        CAPTURE(arguments);
        full_pipe unread;
        auto p = unread.start("2", arguments, support::shared_etcd());
        until("it is over", [&] { return has_ended(p.pid()) || only_speaks(p.pid()); });
        p.signal(SIGTERM);
        CHECK(p.wait_for(20s) == 1);
    }
    holder.signal(SIGTERM);
    CHECK(holder.wait_for(20s) == 128 + SIGTERM);
}

TEST_CASE("A signal ends a question that is not read", "[tool]") {
    full_pipe unread;
    const std::string tool = COETCD_TOOL;
    for (const int number : {SIGTERM, SIGINT}) {
        typed_session still(
            {"sh", "-c", "echo PID $$.; exec " + tool + " unlock n --token 5 2>" + unread.path()},
            {"ETCDCTL_ENDPOINTS=" + shared_etcd().url()});
        const std::string said = still.read_until(".");
        const int pid = std::stoi(said.substr(said.find("PID ") + 4));
        until("it asks", [&] { return signal_mask(pid, "SigCgt:").has(SIGCONT); });
        ::kill(pid, number);
        until("it ends", [&] { return has_ended(pid); });
    }
}

TEST_CASE("A password is not shown after fg where the question had to wait", "[tool][terminal]") {
    full_pipe unread;
    typed_session bash({"bash", "--norc", "--noprofile", "-i"},
                       {"PS1=$ ", "TERM=dumb", "ETCDCTL_ENDPOINTS=" + shared_etcd().url()});
    const std::string user = unique_name("u");
    bash.type(COETCD_TOOL " who zz --user " + user + " 2>" + unread.path() + "\n");
    until("it asks", [&] {
        for (const fs::directory_entry& each : fs::directory_iterator("/proc")) {
            std::ifstream in(each.path() / "cmdline");
            const std::string line{std::istreambuf_iterator<char>(in), {}};
            if (line.find(user) != line.npos) {
                return signal_mask(std::stoi(each.path().filename()), "SigCgt:").has(SIGCONT);
            }
        }
        return false;
    });
    bash.type("\x1a");
    (void)bash.read_until("Stopped");
    (void)bash.read_until("$ ");
    bash.type("fg\n");
    (void)bash.read_until("who zz");
    std::string shown;
    until("it asks again", [&] {
        shown += unread.drained();
        return shown.find("Password of " + user + ": ") != shown.npos;
    });
    bash.type("SECRETPW\n");
    const std::string read = bash.read_until("$ ");
    CHECK(read.find("SECRET") == read.npos);
    CHECK(shown.find("Password", shown.find("Password") + 1) == shown.npos);
}

TEST_CASE("elect --listen does not wait for a reader of its notes at each line", "[tool]") {
    const std::string name = unique_name("unread"), lease = granted_lease();
    full_pipe unread;
    auto p = unread.start("2",
                          {"elect",
                           "--listen",
                           name,
                           "--endpoints",
                           "127.0.0.1:1,127.0.0.1:" + std::to_string(shared_etcd().port())},
                          support::shared_etcd());
    CHECK(next_line(p) == "nobody");
    put_place(name, lease, "first");
    CHECK(next_line(p) == "first");
    const auto began = clock_type::now();
    for (const std::string value : {"a", "b", "c", "d"}) {
        put_place(name, lease, value);
        CHECK(next_line(p) == value);
    }
    CHECK(clock_type::now() - began < 4s);
    p.signal(SIGTERM);
    CHECK(p.wait_for(20s) == 128 + SIGTERM);
}

TEST_CASE("The key is written although nobody reads the notes", "[tool]") {
    const std::string name = unique_name("unread");
    full_pipe unread;
    auto holder = start({"lock", name});
    CHECK(next_line(holder).starts_with(name + "/"));
    auto p = unread.start("2", {"lock", name, "-v"}, support::shared_etcd());
    until("it waits", [&] { return waiting_for(name) == 1; });
    holder.signal(SIGTERM);
    CHECK(next_line(p).starts_with(name + "/"));
    p.signal(SIGTERM);
    CHECK(p.wait_for(20s) == 0);
}

TEST_CASE("A command that cannot be run holds nothing although nobody reads that", "[tool]") {
    const std::string name = unique_name("unread");
    full_pipe unread;
    for (const bool signalled : {false, true}) {
        auto p = unread.start("2", {"lock", name, "--", "/nowhere/at/all"}, support::shared_etcd());
        if (signalled) {
            const std::string own = std::to_string(p.pid());
            until("it says so", [&] {
                std::ifstream children("/proc/" + own + "/task/" + own + "/children");
                int child = 0;
                // It blocks signals too before it tries to run the command, but does not sleep.
                return (children >> child) && signal_mask(child, "SigBlk:").has(SIGTERM) &&
                       sleeps(child);
            });
            p.signal(SIGTERM);
        }
        CHECK(p.wait_for(20s) == 127);
        CHECK(run({"who", name}).exit_code == 1);
    }
}

TEST_CASE("What a slow reader cannot take at once is not lost", "[tool][large]") {
    const std::string prefix = unique_name("slow");
    const std::string lease = granted_lease();
    for (int i = 0; i != 40; ++i) {
        put_place(prefix + "/" + std::to_string(i), lease, std::string(4000, 'x'));
    }
    int ends[2];
    REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(ends[1], STDOUT_FILENO);
        ::setenv("ETCDCTL_ENDPOINTS", support::shared_etcd().url().c_str(), 1);
        ::execl(COETCD_TOOL, COETCD_TOOL, "top", prefix.c_str(), "--json", nullptr);
        ::_exit(126);
    }
    ::close(ends[1]);
    std::string all;
    char some[1000];
    until(
        "all of it came",
        [&] {
            const ssize_t n = ::read(ends[0], some, sizeof some);
            all.append(some, n > 0 ? static_cast<std::size_t>(n) : 0);
            return n == 0;
        },
        60s);
    ::close(ends[0]);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(std::count(all.begin(), all.end(), '\n') == 40);
}

TEST_CASE("A loss that is found when it is given back is no success", "[tool]") {
    const std::string name = unique_name("lost");
    const temporary_file gate("coetcd-tool");
    REQUIRE(::mkfifo(gate.path().c_str(), 0600) == 0);
    const std::string waits = "echo $COETCD_LOCK_KEY; cat " + gate.path().string() + "; exit 0";
    auto p = start({"sem", name, "--ttl", "60s", "--", "sh", "-c", waits});
    const std::string key = next_line(p);
    CHECK(support::shared_etcd().etcdctl({"del", key}).output.starts_with("1"));
    std::ofstream(gate.path()) << "go on\n";
    CHECK(p.wait_for(20s) == 75);
}

TEST_CASE("A label is not taken for what stands beside it", "[tool][hostile]") {
    const std::string name = unique_name("label");
    const std::string label = "  ops@db  token 5\u00A0\u2003 ttl 9s \u3000 ";
    auto p = start({"lock", name, "--label", label, "--", "sh", "-c", "echo has; exec sleep 300"});
    CHECK(next_line(p) == "has");
    CHECK(run({"who", name}).output.find("has     ops@db token 5 ttl 9s  token ") == 0);
    CHECK(run({"top", name, "--once"}).output.find("  ops@db token 5 ttl 9s  ") !=
          std::string::npos);
    CHECK(who(name)["holders"][0]["label"] == label);
    p.signal(SIGTERM);
    CHECK(p.wait_for(20s) == 128 + SIGTERM);
}

TEST_CASE("TAB takes no more names than it can offer in time", "[tool][completion]") {
    const own_directory here;
    const fs::path other = here.path / "coetcd";
    std::ofstream(other) << "#!/bin/sh\nseq 1000000 | sed 's|.*|{\"name\":\"many/&\"}|'\n";
    fs::permissions(other, fs::perms::owner_all);
    typing bash("PATH=" + here.path.string() + ":$PATH\n");
    CHECK(
        bash.result_of("COMP_LINE='coetcd who many/'; COMP_WORDS=(coetcd who many/); COMP_CWORD=2; "
                       "_coetcd coetcd many/ who; echo ${#COMPREPLY[@]}") == "500");
}

TEST_CASE("status cuts no number", "[tool][large]") {
    const std::string body =
        R"({"header":{"cluster_id":"1","member_id":"1","revision":"1","raft_term":"1"},)"
        R"("version":"3.4.23-alpha.1","dbSize":"1044480","leader":"1","raftIndex":"1","raftTerm":"1"})";
    const no_reads etcd("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                            std::to_string(body.size()) + "\r\n\r\n" + body,
                        "/v3/maintenance/status");
    const auto text = run({"status", "--endpoints", etcd.url()});
    CHECK(text.output.find("  3.4.23-alpha.1  leader  ") != std::string::npos);
    CHECK(text.output.find("  1020.0 KiB  ") != std::string::npos);
}

TEST_CASE("top --once cuts no name, and lets none make other lines long", "[tool][large]") {
    const std::string prefix = unique_name("long") + "/", lease = granted_lease();
    const std::string some(300, 'n'), many(100'000, 'm');
    const std::string odd = std::string(249, 'x') + "\xc3\xa4\xc2\x9b\xe2\x80\xae" + some;
    for (const std::string& name : {some, many, odd, std::string("short")}) {
        put_place(prefix + name, lease, std::string(1000, 'l'));
    }
    std::istringstream table(run({"top", prefix, "--once"}).output);
    std::string text;
    for (std::string line; std::getline(table, line);) {
        CHECK((line.size() < 1000 || line.starts_with(prefix + many + "  ")));
        text += line + "\n";
    }
    CHECK(text.find("\n" + prefix + some + "  ") != text.npos);
    CHECK(text.find("\n" + prefix + std::string(249, 'x') + "\xc3\xa4???" + some + "  ") !=
          text.npos);
}

TEST_CASE("What cannot be run is told of as text", "[tool]") {
    words line{"sh", "-c", "exec \"$@\" 2>&1", "sh"};
    for (const std::string& word : command({"lock", unique_name("odd"), "--", "\033[31m/x"})) {
        line.push_back(word);
    }
    const auto r = run_process(line, with_etcd());
    CHECK(r.exit_code == 127);
    CHECK(r.output == "coetcd: ?[31m/x: No such file or directory\n");
}

TEST_CASE("Pages that do not follow each other end a read", "[tool][hostile]") {
    const std::string name = unique_name("hostile");
    const std::string body =
        R"({"header":{"cluster_id":"1","member_id":"1","revision":"5","raft_term":"1"},"kvs":[{"key":"YQ==","create_revision":"4"}],"more":true})";
    const no_reads etcd("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body);
    const auto r = run_all("who " + name + " --endpoints " + etcd.url());
    CHECK(r.exit_code == 69);
    CHECK(r.output.find("do not follow") != std::string::npos);
}

TEST_CASE("TAB does not wait for long", "[tool][completion]") {
    const own_directory here;
    const std::string slow = (here.path / "coetcd").string();
    std::ofstream(slow) << "#!/bin/sh\nexec sleep 300\n";
    fs::permissions(slow, fs::perms(0700));
    typing bash("PATH=" + here.path.string() + ":$PATH; hash -r\n");
    CHECK(bash.completed("lock some") == "<lock><someEND>enough");
}
