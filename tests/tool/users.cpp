// SPDX-License-Identifier: BSL-1.0
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <iostream>
#include <pwd.h>
#include <random>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "support/catch.hpp"
#include "support/certificates.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "support/temporary_file.hpp"
#include "tool/common.hpp"
#include "tool/typed_session.hpp"

// Users, their terminals, and their secrets.

using namespace std::chrono_literals;
using namespace support;
using namespace tool_tests;
namespace fs = std::filesystem;

namespace {

/// Copies of the command and of setpriv for somebody who is not root; the latter runs as root.
/// Nobody else of this machine gets at them: whoever runs them is in a group of its own.
class for_another {
public:
    for_another() {
        id_ = 59'000 + std::random_device()() % 1000;
        while (::getpwuid(id_) != nullptr || ::getgrgid(id_) != nullptr) {
            ++id_;
        }
        std::string made =
            "/tmp/coetcd-users-XXXXXX"; // below TMPDIR it could not get at them, either
        if (::mkdtemp(made.data()) != nullptr) {
            place_ = made;
            fs::copy_file(COETCD_TOOL, place_ / "coetcd");
            fs::copy_file("/usr/bin/setpriv", place_ / "as");
            std::ofstream(place_ / "said").close();
            is_there_ = give(place_ / "coetcd", 0750) && give(place_ / "said", 0660) &&
                        give(place_ / "as", 04750) && give(place_, 0710);
        }
    }
    ~for_another() { fs::remove_all(place_); }
    for_another(const for_another&) = delete;
    for_another& operator=(const for_another&) = delete;

    /// A shell script that it runs, with these arguments.
    words shell(const std::string& script, const words& arguments = {}) const {
        const std::string id = std::to_string(id_);
        words line{
            "setpriv", "--reuid", id, "--regid", id, "--clear-groups", "sh", "-c", script, "sh"};
        line.insert(line.end(), arguments.begin(), arguments.end());
        return line;
    }
    std::string coetcd() const { return (place_ / "coetcd").string(); }
    /// What it may write to.
    std::string said() const { return (place_ / "said").string(); }
    /// What it writes in front of a program that root is to run.
    std::string as_root() const {
        return (place_ / "as").string() + " --reuid 0 --regid 0 --clear-groups";
    }
    bool works() const {
        process_options how;
        how.capture = true;
        return is_there_ && run_process(shell(as_root() + " id -ru"), how).output == "0\n";
    }

private:
    bool give(const fs::path& file, mode_t mode) const {
        return ::chown(file.c_str(), 0, id_) == 0 && ::chmod(file.c_str(), mode) == 0;
    }

    uid_t id_ = 0;
    fs::path place_;
    bool is_there_ = false;
};

/// Whether a test can go on; says so if not.
bool can_change_users(const for_another& files, const std::string& test) {
    if (::geteuid() == 0 && files.works()) {
        return true;
    }
    std::cout << "skipped: " << test << ": it needs root, and setuid programs\n";
    return false;
}

std::string content(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// A shell with job control.
typed_session interactive_bash() {
    return typed_session({"bash", "--norc", "--noprofile", "-i"},
                         {"PS1=$ ", "TERM=dumb", "ETCDCTL_ENDPOINTS=" + shared_etcd().url()});
}

/// The process that a command tells of as `PID 123.`
int told_pid(typed_session& shell) {
    (void)shell.read_until("PID ");
    return std::stoi(shell.read_until("."));
}

/// Types a command that sleeps under a lock. @returns The process that sleeps.
int sleep_under(typed_session& shell, const std::string& name, const std::string& input = "") {
    shell.type(std::string(COETCD_TOOL) + " lock " + name +
               " -- sh -c 'echo P\"\"ID $$.; exec sleep 300'" + input + "\n");
    return told_pid(shell);
}

/// As the kernel tells it: `T` is stopped.
char state_of(int pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string number, program;
    char state = 'X';
    in >> number >> program >> state;
    return state;
}

/// The process group that has its terminal.
int terminal_group_of(int pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string word;
    int group = 0;
    for (int i = 0; i != 7; ++i) {
        in >> word;
    }
    in >> group;
    return group;
}

} // namespace

TEST_CASE("A command runs also as the first process of another namespace", "[tool][users]") {
    const words apart{"unshare", "--pid"};
    // The second one is itself in a namespace that /proc does not show.
    for (const words& front : {words{}, words{"unshare", "--pid", "--fork"}}) {
        words line = front;
        line.insert(line.end(), apart.begin(), apart.end());
        words tries = line;
        tries.push_back("true");
        if (run_process(tries).exit_code != 0) {
            std::cout << "skipped: a command in another PID namespace: it needs root\n";
            continue;
        }
        CAPTURE(line);
        line.insert(line.end(), {COETCD_TOOL, "lock", unique_name("users"), "--", "sh", "-c"});
        line.push_back("echo $$ ran; exit 7");
        support::process_options options = with_etcd();
        // LeakSanitizer looks for the process in /proc, and gives up.
        options.environment.push_back("ASAN_OPTIONS=detect_leaks=0");
        const auto r = run_process(line, options);
        CHECK(r.exit_code == 7);
        CHECK(r.output == "1 ran\n");
    }
}

TEST_CASE("A second signal ends it also as the first process of a namespace", "[tool][users]") {
    const words apart{"unshare", "--pid", "--fork"};
    words line = apart;
    line.push_back("true");
    if (run_process(line).exit_code != 0) {
        std::cout << "skipped: the first process of a PID namespace: it needs root\n";
        return;
    }
    line = apart;
    line.insert(line.end(), {COETCD_TOOL, "lock", "n"});
    support::etcd_server own;
    background_process p(line, with_etcd(own));
    (void)next_line(p);
    const std::string of = std::to_string(p.pid());
    std::ifstream children("/proc/" + of + "/task/" + of + "/children");
    int pid = 0;
    REQUIRE(children >> pid);
    own.pause();
    const auto began = std::chrono::steady_clock::now();
    until("it has ended", [&] {
        ::kill(pid, SIGTERM);
        return !p.running();
    });
    CHECK(p.wait() == 128 + SIGTERM);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(4)); // not 5
}

TEST_CASE("A command that may not be stopped is told of at once, and by the status",
          "[tool][users]") {
    const for_another files;
    if (!can_change_users(files, "a command of another user")) {
        return;
    }
    const std::string sleeps = files.as_root() + " sh -c 'echo $$; exec sleep 300'";
    // The command itself, and one that it has started; also where others' processes are not seen.
    const words seeing{}, blind{"unshare",
                                "--mount",
                                "sh",
                                "-c",
                                "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"",
                                "sh"};
    const words scripts{
        "exec " + sleeps, sleeps + " & wait", "trap : TERM; " + sleeps + " & wait; wait"};
    for (const words& front : {seeing, blind}) {
        words tries = front;
        tries.insert(tries.end(), {"true"});
        if (!front.empty() && run_process(tries).exit_code != 0) {
            std::cout << "skipped: where others' processes are not seen: they cannot be hidden\n";
            continue;
        }
        for (const std::string& script : scripts) {
            CAPTURE(front, script);
            const std::string name = unique_name("users");
            std::ofstream(files.said()).close(); // empty again
            words line = files.shell(
                "exec \"$@\" 2>'" + files.said() + "'",
                {files.coetcd(), "lock", name, "--grace", "1s", "--", "sh", "-c", script});
            line.insert(line.begin(), front.begin(), front.end());
            background_process p(line, with_etcd());
            const int pid = std::stoi(next_line(p));
            const std::string token = who(name)["holders"][0]["token"].dump();
            CHECK(run({"unlock", name, "--token", token}).exit_code == 0);
            CHECK(p.wait_for(15s) == 76);
            const std::string shouted = content(files.said());
            CHECK(shouted.find("still runs") != std::string::npos);
            if (front.empty()) {
                CHECK(shouted.find("CANNOT BE STOPPED") != std::string::npos);
                CHECK(shouted.find(std::to_string(pid)) != std::string::npos);
            }
            CHECK_FALSE(has_ended(pid)); // as it has said
            ::kill(pid, SIGKILL);
        }
    }
}

TEST_CASE("A signal that cannot be passed on is told of", "[tool][users]") {
    const for_another files;
    if (!can_change_users(files, "a signal for another user")) {
        return;
    }
    const std::string name = unique_name("users");
    const std::string sleeps = "exec " + files.as_root() + " sh -c 'echo $$; exec sleep 300'";
    background_process p(
        files.shell("exec \"$@\" 2>&1", {files.coetcd(), "lock", name, "--", "sh", "-c", sleeps}),
        with_etcd());
    const std::string pid = next_line(p);
    p.signal(SIGTERM);
    const std::string said = next_line(p);
    CHECK(said.find("signal 15 is not passed on") != std::string::npos);
    CHECK(said.find(pid) != std::string::npos);
    CHECK(who(name)["holders"].size() == 1); // it has it, as long as its command runs
    ::kill(std::stoi(pid), SIGKILL);
    CHECK(p.wait() == 128 + SIGKILL);
}

TEST_CASE("A command that may not be stopped, and stands still, is not woken", "[tool][users]") {
    const for_another files;
    if (!can_change_users(files, "a command that stands still")) {
        return;
    }
    const std::string name = unique_name("users");
    const std::string stands =
        "exec " + files.as_root() + " sh -c 'echo $$; kill -STOP $$; exec sleep 300'";
    background_process p(
        files.shell("exec \"$@\" 2>/dev/null",
                    {files.coetcd(), "lock", name, "--grace", "1s", "--", "sh", "-c", stands}),
        with_etcd());
    const int pid = std::stoi(next_line(p));
    until("it stands still", [&] { return state_of(pid) == 'T'; });
    const std::string token = who(name)["holders"][0]["token"].dump();
    CHECK(run({"unlock", name, "--token", token}).exit_code == 0);
    CHECK(p.wait_for(15s) == 76);
    CHECK(state_of(pid) != 'S'); // it may have ended: it cannot be continued any more
    ::kill(pid, SIGKILL);
}

TEST_CASE("top in the background leaves the screen alone; only q ends it", "[tool][terminal]") {
    typed_session bash = interactive_bash();
    bash.type(std::string(COETCD_TOOL) + " top no/lock &\n");
    (void)bash.read_until("$ ");
    std::string shown;
    until("it has stopped", [&] {
        bash.type("jobs -s\n");
        shown += bash.read_until("$ ");
        return shown.find("Stopped") != shown.npos;
    });
    CHECK(shown.find("\x1b[?1049h") == shown.npos);
    bash.type("fg\n");
    (void)bash.read_until("waiters");
    bash.type(std::string("\0\x1a", 2)); // Ctrl-@, Ctrl-Z
    (void)bash.read_until("Stopped");
    bash.type("fg\n");
    (void)bash.read_until("waiters");
    bash.type("q");
    (void)bash.read_until("\x1b[?1049l");
}

TEST_CASE("What waits for its terminal in the background is ended by a signal",
          "[tool][terminal]") {
    const std::string tool = COETCD_TOOL;
    for (const std::string what :
         {"top", "who n --user root", "lock n --user root -- true", "unlock n --token 5"}) {
        CAPTURE(what);
        // timeout has a job of its own, and sends SIGTERM, and then SIGCONT.
        typed_session script({"bash", "-c", "timeout 1 " + tool + " " + what + "; echo ended $?"},
                             {"ETCDCTL_ENDPOINTS=" + shared_etcd().url()});
        CHECK_NOTHROW(script.read_until("ended 124"));
    }
}

TEST_CASE("Ctrl-Z stops a script with its command, and fg continues both", "[tool][terminal]") {
    const std::string name = unique_name("users");
    typed_session bash({"bash", "--norc", "--noprofile", "-i"},
                       {"PS1=$ ", "TERM=dumb", "ETCDCTL_ENDPOINTS=" + shared_etcd().url()});
    bash.type(std::string("sh -c \"") + COETCD_TOOL + " lock " + name +
              " -- sh -c 'echo ru\"\"ns; exec sleep 300'; echo sta\"\"tus $?\"\n");
    (void)bash.read_until("runs");
    bash.type("\x1a");
    (void)bash.read_until("Stopped");
    bash.type("echo ba\"\"ck\n");
    (void)bash.read_until("back");
    CHECK(who(name)["holders"].size() == 1);
    bash.type("fg\n");
    (void)bash.read_until("lock");
    until("it goes on", [&] { // with its terminal
        bash.type("\x03");
        return run({"who", name}).exit_code == 1;
    });
    // A command that is alone on its terminal could not be continued.
    typed_session alone(
        {COETCD_TOOL, "lock", name, "--", "sh", "-c", "echo ready; read x; echo got $x"},
        {"ETCDCTL_ENDPOINTS=" + shared_etcd().url()});
    (void)alone.read_until("ready");
    alone.type("\x1a");
    (void)alone.read_until("^Z");
    alone.type("word\n");
    (void)alone.read_until("got word");
}

TEST_CASE("A pipeline keeps its terminal, and its lock", "[tool][terminal]") {
    const std::string name = unique_name("users"), lock = COETCD_TOOL + (" lock " + name);
    typed_session bash = interactive_bash();
    bash.type(lock + " -- sh -c 'echo P\"\"ID $$.; exec sleep 300' | "
                     "sh -c 'read x; echo \"$x\"; read word </dev/tty; echo g\"\"ot $word'\n");
    const int pid = told_pid(bash);
    bash.type("this\n"); // is for the other end of the pipe
    (void)bash.read_until("got this");
    CHECK(who(name)["holders"].size() == 1);
    bash.type("\x1a");
    (void)bash.read_until("Stopped");
    CHECK(state_of(pid) == 'T');
    bash.type("fg\n");
    until("it goes on", [&] { return state_of(pid) != 'T'; });
    bash.type("\x03");
    until("it is given back", [&] { return run({"who", name}).exit_code == 1; });
    // Whichever of a pipeline asks for the terminal gets it.
    bash.type(lock + " -- sh -c 'read word; echo g\"\"ot $word' | cat\n");
    bash.type("that\n");
    (void)bash.read_until("got that");
    bash.type("seq 3 | " + lock + " -- sh -c 'read word </dev/tty; echo g\"\"ot $word'\n");
    bash.type("more\n");
    (void)bash.read_until("got more");
    bash.type("echo ba\"\"ck\n");
    (void)bash.read_until("back");
}

TEST_CASE("Several of one job stop once, and go on with one fg", "[tool][terminal]") {
    const std::string name = unique_name("users");
    const auto lock = [&](const char* which) { return COETCD_TOOL + (" lock " + name) + which; };
    typed_session bash = interactive_bash();
    bash.type(lock("-1") + " -- sh -c 'echo P\"\"ID $$. >&2; exec sleep 300' | " + lock("-2") +
              " -- cat | " + lock("-3") + " -- cat | " + lock("-4") + " -- cat\n");
    const int pid = told_pid(bash);
    for (const std::string which : {"-2", "-3", "-4"}) {
        until("all run", [&] { return run({"who", name + which}).exit_code == 0; });
    }
    for (int i = 0; i != 3; ++i) {
        bash.type("\x1a");
        (void)bash.read_until("Stopped");
        (void)bash.read_until("$ ");
        bash.type("fg\n");
        (void)bash.read_until("-4 -- cat");
        until("it goes on", [&] { return state_of(pid) != 'T'; });
    }
    bash.type("\x03"); // for what has the terminal: the shell, should they have stopped again
    bash.type("echo sta\"\"tus $?\n");
    CHECK(bash.read_until("status 130").find("Stopped") == std::string::npos);
    CHECK(has_ended(pid));
}

TEST_CASE("What is continued goes on, however soon that comes", "[tool][terminal]") {
    const std::string name = unique_name("users");
    const temporary_file said("users");
    typed_session bash = interactive_bash();
    bash.type(std::string(COETCD_TOOL) + " lock " + name +
              " -- sh -c 'echo P\"\"ID $PPID.; while sleep 0.01; do echo >>" +
              said.path().string() + "; done' &\n");
    const int pid = told_pid(bash);
    for (int i = 0; i != 30; ++i) {
        CAPTURE(i);
        ::kill(-pid, SIGTSTP);
        const auto soon = std::chrono::steady_clock::now() + i * 100us;
        while (std::chrono::steady_clock::now() < soon) {
        }
        ::kill(-pid, SIGCONT);
        // More than it would say if the first signal was heeded at last.
        const std::size_t before = content(said.path()).size();
        until("it goes on", [&] { return content(said.path()).size() > before + 20; });
    }
    CHECK(run({"who", name}).exit_code == 0);
    ::kill(pid, SIGTERM);
    until("it ends", [&] { return has_ended(pid); });
}

TEST_CASE("Ctrl-Z stops a command whose input is no terminal, too", "[tool][terminal]") {
    const std::string name = unique_name("users");
    typed_session bash = interactive_bash();
    const int pid = sleep_under(bash, name, " </dev/null");
    for (int i = 0; i != 2; ++i) {
        bash.type("\x1a");
        (void)bash.read_until("Stopped");
        CHECK(state_of(pid) == 'T');
        bash.type("fg\n");
        until("it goes on", [&] { return state_of(pid) != 'T'; });
    }
    bash.type("\x03");
    until("it ends", [&] { return has_ended(pid); });
    bash.type("echo sta\"\"tus $?\n");
    (void)bash.read_until("status 130");
}

TEST_CASE("A command has the terminal from its start, as coetcd has", "[tool][terminal]") {
    const std::string name = unique_name("users");
    typed_session bash = interactive_bash();
    const int pid = sleep_under(bash, name);
    // A command that never asks for it has it, too, like one of another user that Ctrl-C must
    // reach.
    until("it has the terminal", [&] { return terminal_group_of(pid) == pid; });
    bash.type("\x03");
    until("it ends", [&] { return has_ended(pid); });
}

TEST_CASE("A command that stood still until its lock was another's goes on no more",
          "[tool][terminal]") {
    const std::string name = unique_name("users");
    const temporary_file said("users");
    typed_session bash = interactive_bash();
    bash.type(std::string(COETCD_TOOL) + " lock --ttl 2s " + name +
              " -- sh -c 'echo P\"\"ID $$.; while :; do echo on >>" + said.path().string() +
              "; done'\n");
    const int pid = told_pid(bash);
    until("it runs", [&] { return !content(said.path()).empty(); });
    bash.type("\x1a");
    (void)bash.read_until("Stopped");
    CHECK(state_of(pid) == 'T');
    CHECK(run({"lock", name, "--timeout", "20s", "--", "echo", "other"}).output == "other\n");
    const std::size_t before = content(said.path()).size();
    bash.type("fg\n");
    until("it ends", [&] { return has_ended(pid); });
    CHECK(content(said.path()).size() == before);
    bash.type("echo sta\"\"tus $?\n");
    (void)bash.read_until("status 75");
}

TEST_CASE("After Ctrl-Z and bg the terminal is the shell's", "[tool][terminal]") {
    const std::string name = unique_name("users");
    typed_session bash = interactive_bash();
    const int pid = sleep_under(bash, name);
    bash.type("\x1a");
    (void)bash.read_until("Stopped");
    bash.type("bg\n");
    until("it goes on", [&] { return state_of(pid) != 'T'; });
    bash.type("echo ba\"\"ck\n");
    (void)bash.read_until("back");
    CHECK(state_of(pid) != 'T');
    bash.type("fg\n");
    (void)bash.read_until("lock");
    until("it ends", [&] {
        bash.type("\x03");
        return run({"who", name}).exit_code == 1;
    });
}

TEST_CASE("A command that is started in the background reads after fg", "[tool][terminal]") {
    const std::string name = unique_name("users");
    typed_session bash = interactive_bash();
    bash.type(std::string(COETCD_TOOL) + " lock " + name +
              " -- sh -c 'echo P\"\"ID $$.; read word; echo g\"\"ot $word' &\n");
    const int pid = told_pid(bash);
    until("it stops", [&] { return state_of(pid) == 'T'; });
    until("the shell notices", [&] {
        bash.type("jobs\n");
        return bash.read_until("lock").find("Stopped") != std::string::npos;
    });
    bash.type("fg\n");
    (void)bash.read_until("lock");
    bash.type("word\n");
    (void)bash.read_until("got word");
    bash.type("echo ba\"\"ck\n");
    (void)bash.read_until("back");
}

TEST_CASE("A signal ends a command that stands still", "[tool]") {
    const std::string name = unique_name("users");
    words line = command({"lock", name, "--", "sh", "-c", "echo $$; kill -STOP $$"});
    line.insert(line.begin(), "setsid"); // without a terminal
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        background_process p(line, with_etcd());
        const int pid = std::stoi(next_line(p));
        until("it stops", [&] { return state_of(pid) == 'T'; });
        p.signal(number);
        CHECK(p.wait_for(15s) == 128 + number);
    }
}

TEST_CASE("A command that leaves its process group is stopped at a loss", "[tool]") {
    const std::string name = unique_name("users");
    auto p = start({"lock",
                    name,
                    "--grace",
                    "1s",
                    "--",
                    "perl",
                    "-e",
                    "$SIG{TERM} = sub { print \"term\\n\" }; $| = 1; "
                    "setpgrp(0, getpgrp(getppid())) or die; print \"$$\\n\"; sleep 300 while 1"});
    const int pid = std::stoi(next_line(p));
    const std::string token = who(name)["holders"][0]["token"].dump();
    CHECK(run({"unlock", name, "--token", token}).exit_code == 0);
    CHECK(p.wait_for(15s) == 75);
    CHECK(p.read_line(10s) == "term");
    CHECK(has_ended(pid));
    ::kill(pid, SIGKILL);
}

TEST_CASE("top leaves the terminal as it was, however it ends", "[tool][terminal]") {
    const std::string prefix = unique_name("users"), tool = COETCD_TOOL;
    const std::string environment = "ETCDCTL_ENDPOINTS=" + shared_etcd().url();
    const std::string pages = "\033[?1049h", no_pages = "\033[?1049l";
    for (const std::string keys : {"q", "\x1cq", "\x03"}) { // Ctrl-\ would end it at once
        typed_session sh({"bash",
                          "-c",
                          "trap : INT; " + tool + " top " + prefix +
                              "; echo status $?; stty -a; head -n 1 && echo enough"},
                         {environment});
        (void)sh.read_until(pages);
        (void)sh.read_until("0 waiters");
        sh.type(keys);
        (void)sh.read_until(no_pages);
        (void)sh.read_until(keys == "\x03" ? "status 130" : "status 0");
        (void)sh.read_until(" icanon");
        (void)sh.read_until(" echo ");
        sh.type("this\n"); // is waited for
        (void)sh.read_until("enough");
    }
    typed_session still({"sh", "-c", "echo PID $$.; exec " + tool + " top " + prefix},
                        {environment});
    const std::string said = still.read_until(".");
    const int pid = std::stoi(said.substr(said.find("PID ") + 4));
    (void)still.read_until("0 waiters");
    still.type("\x13"); // Ctrl-S: nothing more is shown
    ::kill(pid, SIGTERM);
    until("it ends", [&] { return has_ended(pid); });
    typed_session bash({"bash", "--norc", "--noprofile", "-i"},
                       {"PS1=$ ", "TERM=dumb", environment});
    bash.type(tool + " top " + prefix + "\n");
    for (int i = 0; i != 2; ++i) {
        (void)bash.read_until(pages);
        (void)bash.read_until("0 waiters");
        bash.type("\x1a");
        const std::string read = bash.read_until("Stopped");
        CHECK(read.find(no_pages) != read.npos);
        bash.type("fg\n");
    }
    const std::string stop = "\x13"; // Ctrl-S
    for (const std::string next : {"", " </dev/tty", " >/dev/tty"}) {
        (void)bash.read_until("0 waiters");
        bash.type((next.empty() ? "" : stop) + "q");
        (void)bash.read_until(no_pages);
        (void)bash.read_until("$ ");
        bash.type(tool + " top " + prefix + next + "\n");
    }
    (void)bash.read_until("0 waiters");
    bash.type(stop + "q");
    (void)bash.read_until(no_pages);
}

TEST_CASE("top leaves the terminal as it was also for signals of others", "[tool][terminal]") {
    const std::string line =
        std::string("sh -c 'echo P\"\"ID $$.; exec ") + COETCD_TOOL + " top no/lock'";
    const std::string pages = "\033[?1049h", no_pages = "\033[?1049l";
    typed_session bash = interactive_bash();
    for (const int number : {SIGHUP, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM}) {
        bash.type(line + "; echo sta\"\"tus $?; stty -a\n");
        const int pid = told_pid(bash);
        (void)bash.read_until(pages);
        (void)bash.read_until("0 waiters");
        ::kill(pid, number);
        (void)bash.read_until(no_pages);
        (void)bash.read_until("status " + std::to_string(128 + number));
        (void)bash.read_until(" icanon");
        (void)bash.read_until(" echo ");
    }
    bash.type(line + "\n");
    const int pid = told_pid(bash);
    for (const int number : {SIGTSTP, SIGSTOP}) {
        (void)bash.read_until(pages);
        (void)bash.read_until("0 waiters");
        ::kill(pid, number);
        if (number == SIGTSTP) {
            (void)bash.read_until(no_pages);
        }
        (void)bash.read_until("Stopped");
        bash.type("fg\n");
    }
    (void)bash.read_until(pages);
    (void)bash.read_until("0 waiters"); // and keys are read as they are typed
    bash.type("q");
    (void)bash.read_until(no_pages);
    (void)bash.read_until("$ "); // what is typed earlier may be thrown away
    // It ends while the terminal is the shell's.
    for (const int number : {SIGTSTP, SIGSTOP}) {
        bash.type(line + "\n");
        const int stopped = told_pid(bash);
        (void)bash.read_until("0 waiters");
        ::kill(stopped, number);
        (void)bash.read_until("Stopped");
        bash.type("kill %%\n");
        until("it ends", [&] { return has_ended(stopped); });
        bash.type("echo ba\"\"ck\n");
        (void)bash.read_until("back");
    }
}

TEST_CASE("unlock asks whoever types, wherever its output goes", "[tool][terminal]") {
    const std::string name = unique_name("users");
    auto holder = start({"lock", name});
    (void)next_line(holder);
    const std::string line = std::string(COETCD_TOOL) + " unlock " + name + " --token " +
                             who(name)["holders"][0]["token"].dump();
    const std::string environment = "ETCDCTL_ENDPOINTS=" + shared_etcd().url();
    for (const std::string output : {"", " >/dev/null", " | cat", " 2>&1 | cat"}) {
        CAPTURE(output);
        for (const std::string answer : {"\n", "n\n", "yess\n", "\x04"}) {
            typed_session sh(
                {"bash", "-c", "set -o pipefail; " + line + output + "; echo status $?"},
                {environment});
            (void)sh.read_until("[y/N] ");
            sh.type(answer);
            (void)sh.read_until("nothing was done");
            (void)sh.read_until("status 1");
        }
        CHECK(holder.running());
    }
    {
        typed_session sh({"bash", "-c", "trap : INT; " + line + "; echo status $?"}, {environment});
        (void)sh.read_until("[y/N] ");
        sh.type("\x03");
        (void)sh.read_until("status 130");
    }
    { // what was typed before is no answer
        const temporary_file gate("coetcd-tool");
        const std::string fifo = gate.path().string();
        REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
        typed_session sh({"bash",
                          "-c",
                          "stty -echo; echo ready; cat " + fifo + "; " + line + "; echo status $?"},
                         {environment});
        (void)sh.read_until("ready");
        sh.type("y\n");
        std::ofstream(fifo) << "open\n";
        (void)sh.read_until("[y/N] ");
        sh.type("n\n");
        (void)sh.read_until("status 1");
        CHECK(holder.running());
    }
    { // what waits for permits gets another token with them
        const std::string permits = unique_name("users");
        auto first = start({"sem", permits});
        (void)next_line(first);
        auto second = start({"sem", permits});
        until("it waits", [&] { return waiting_for(permits) == 1; });
        const std::string token = who(permits)["waiters"][0]["token"].dump();
        typed_session ends({"bash",
                            "-c",
                            std::string(COETCD_TOOL) + " unlock " + permits + " --token " + token +
                                "; echo status $?"},
                           {environment});
        (void)ends.read_until("[y/N] ");
        first.signal(SIGTERM);
        (void)next_line(second);
        ends.type("y\n");
        (void)ends.read_until("status 1");
        CHECK(second.running());
    }
    typed_session sh({"bash", "-c", line + " | cat; echo status $?"}, {environment});
    (void)sh.read_until("[y/N] ");
    sh.type("y\n");
    (void)sh.read_until("status 0");
    CHECK(holder.wait() == 75);
    for (const std::string answer : {"Y", "yes", "Yes", "YES"}) {
        auto next = start({"lock", name});
        (void)next_line(next);
        typed_session one(
            {COETCD_TOOL, "unlock", name, "--token", who(name)["holders"][0]["token"].dump()},
            {environment});
        (void)one.read_until("[y/N] ");
        one.type(answer + "\n");
        CHECK(next.wait_for(15s) == 75);
    }
}

TEST_CASE("A password is not shown, and Ctrl-C leaves the terminal as it was", "[tool][terminal]") {
    typed_session sh({"bash",
                      "-c",
                      "trap : INT; " + std::string(COETCD_TOOL) +
                          " who n --user somebody; echo status $?; stty -a"},
                     {"ETCDCTL_ENDPOINTS=127.0.0.1:1"});
    (void)sh.read_until("Password of somebody: ");
    sh.type("secr\x03");
    const std::string shown = sh.read_until("echoe");
    CHECK(shown.find("secr") == std::string::npos);
    CHECK(shown.find("status 130") != std::string::npos);
    CHECK(shown.find(" echo echoe") != std::string::npos);
}

TEST_CASE("Each signal that ends the question for a password leaves the terminal as it was",
          "[tool][terminal]") {
    for (const int number : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM}) {
        CAPTURE(number);
        typed_session sh({"bash",
                          "-c",
                          "sh -c 'echo PID $$.; exec " COETCD_TOOL " who n --user somebody'; "
                          "echo status $?.; stty -a"},
                         {"ETCDCTL_ENDPOINTS=127.0.0.1:1"});
        const int pid = told_pid(sh);
        (void)sh.read_until("Password of somebody: ");
        ::kill(pid, number);
        CHECK(sh.read_until("echoe").find(" echo echoe") != std::string::npos);
    }
}

TEST_CASE("Ctrl-C ends the script around it, too", "[tool][terminal]") {
    const std::string name = unique_name("users");
    const std::string line = "bash -c '" + std::string(COETCD_TOOL) + " lock " + name;
    const std::string and_more = "; echo G\"\"OES ON'\n";
    const std::string sleeps = " -- sh -c \"echo P\"\"ID \\$\\$.; exec sleep 300\"";
    typed_session bash = interactive_bash();
    const auto ends = [&] {
        bash.type("\x03");
        (void)bash.read_until("^C");
        bash.type("echo sta\"\"tus $?\n");
        CHECK(bash.read_until("status 130").find("GOES ON") == std::string::npos);
    };
    for (const std::string input : {"", " </dev/null"}) { // with the terminal, and without
        bash.type(line + sleeps + input + and_more);
        (void)told_pid(bash);
        ends();
        CHECK(run({"who", name}).exit_code == 1);
    }
    auto holder = start({"lock", name});
    (void)next_line(holder);
    bash.type(line + and_more);
    until("it waits", [&] { return waiting_for(name) == 1; });
    ends();
    CHECK(waiting_for(name) == 0);
    bash.type(line + "-other -- sh -c \"exit 130\"" + and_more); // no signal at all
    (void)bash.read_until("GOES ON");
}

TEST_CASE("A command that a signal ends leaves the terminal as it was", "[tool][terminal]") {
    typed_session bash = interactive_bash();
    bash.type(std::string(COETCD_TOOL) + " lock " + unique_name("users") +
              " -- sh -c 'stty -echo raw; kill -KILL $$'; stty -a; echo en\"\"ough\n");
    const std::string shown = bash.read_until("enough");
    CHECK(shown.find(" echo ") != std::string::npos);
    CHECK(shown.find(" icanon ") != std::string::npos);
}

TEST_CASE("A password is not shown after Ctrl-Z and fg either", "[tool][terminal]") {
    typed_session bash = interactive_bash();
    bash.type(std::string(COETCD_TOOL) + " who n --user somebody\n");
    (void)bash.read_until("Password of somebody: ");
    bash.type("\x1a");
    (void)bash.read_until("Stopped");
    bash.type("fg\n");
    (void)bash.read_until("Password of somebody: ");
    bash.type("secr\n");
    CHECK(bash.read_until("$ ").find("secr") == std::string::npos);
}

TEST_CASE("What is asked in the background ends with Enter after fg", "[tool][terminal]") {
    typed_session bash = interactive_bash();
    bash.type(std::string(COETCD_TOOL) + " who n --user somebody &\n");
    until("the shell notices that it has stopped", [&] {
        bash.type("jobs\n");
        return bash.read_until("who n").find("Stopped") != std::string::npos;
    });
    bash.type("fg\n");
    (void)bash.read_until("Password of somebody: ");
    bash.type("secr\r");
    CHECK(bash.read_until("$ ").find("secr") == std::string::npos);
}

TEST_CASE("A command that dies after fg leaves the terminal as it was", "[tool][terminal]") {
    typed_session bash = interactive_bash();
    bash.type("bash -c '" + std::string(COETCD_TOOL) + " lock " + unique_name("users") +
              " -- sh -c \"echo P\"\"ID \\$\\$.; read word; kill -KILL \\$\\$\";"
              " stty -a; echo en\"\"ough' &\n");
    const int pid = told_pid(bash);
    until("it stops", [&] { return state_of(pid) == 'T'; });
    until("the shell notices", [&] {
        bash.type("jobs\n");
        return bash.read_until("lock").find("Stopped") != std::string::npos;
    });
    bash.type("fg\n");
    (void)bash.read_until("lock");
    bash.type("word\n");
    const std::string shown = bash.read_until("enough");
    CHECK(shown.find(" echo ") != std::string::npos);
    CHECK(shown.find(" icanon ") != std::string::npos);
}

TEST_CASE("The command is hardened, whatever its build is configured with", "[tool][hardened]") {
    const auto told = [](const std::string& how) {
        process_options options;
        options.capture = true;
        return run_process({"readelf", how, "-W", COETCD_TOOL}, options).output;
    };
    CHECK(told("-h").find("DYN (Position-Independent Executable") != std::string::npos);
    CHECK(told("-d").find("BIND_NOW") != std::string::npos);
    const std::string segments = told("-l");
    CHECK(segments.find("GNU_RELRO") != std::string::npos);
    CHECK(segments.substr(segments.find("GNU_STACK")).find(" RW ") < 100);
    CHECK(told("--dyn-syms").find("__stack_chk_fail") != std::string::npos);
#ifdef __OPTIMIZE__
    CHECK(told("--dyn-syms").find("_chk@") != std::string::npos);
#endif
}

TEST_CASE("The password is not the command's", "[tool][secrets]") {
    process_options how = with_etcd();
    how.environment.push_back("ETCDCTL_PASSWORD=secret");
    const std::string script = "echo ${ETCDCTL_PASSWORD-none} ${ETCDCTL_ENDPOINTS:+there}";
    const std::string name = unique_name("users");
    const words line{"lock", name, "--", "sh", "-c", script};
    CHECK(run_process(command(line), how).output == "none there\n");
    const words keeps{"lock", "--keep-password", name, "--", "sh", "-c", script};
    CHECK(run_process(command(keeps), how).output == "secret there\n");
    // A variable that is there twice.
    typed_session twice({COETCD_TOOL, "lock", name, "--", "cat", "/proc/self/environ"},
                        {"ETCDCTL_USER=", "ETCDCTL_USER=somebody:secret", how.environment[0]});
    const std::string all = twice.read_until("COETCD_LEASE=");
    CHECK(all.find("COETCD_LOCK_KEY=") != std::string::npos);
    CHECK(all.find("secret") == std::string::npos);
}

namespace {

/// How a signal ends a command that waits for a file, which is a pipe without a writer.
int ended_while_it_reads(const words& flags) {
    words line{"who", "n"};
    line.insert(line.end(), flags.begin(), flags.end());
    auto waits = start(line);
    until("it waits", [&] {
        std::ifstream in("/proc/" + std::to_string(waits.pid()) + "/stat");
        std::string number, program, state;
        return in >> number >> program >> state && program == "(coetcd)" && state == "S";
    });
    waits.signal(SIGTERM);
    return waits.wait();
}

} // namespace

TEST_CASE("Certificates and keys may come from a pipe, and a signal ends the wait for it",
          "[tool][secrets]") {
    const temporary_file file("coetcd-certificate");
    const std::string pipe = file.path().string() + ".pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(ended_while_it_reads({"--cacert", pipe}) == 128 + SIGTERM);
    CHECK(ended_while_it_reads({"--cert", pipe, "--key", pipe}) == 128 + SIGTERM);
    fs::remove(pipe);
    for (const std::string flags : {"--cacert <(yes)", "--cert <(yes) --key <(yes)"}) {
        const auto r = run_process({"bash", "-c", COETCD_TOOL " who n 2>&1 " + flags}, with_etcd());
        CHECK(r.exit_code == 2);
        CHECK(r.output.find(" is larger than 16 MiB") != std::string::npos);
    }
    const auto r = run_process({"bash",
                                "-c",
                                COETCD_TOOL " who n --endpoints 127.0.0.1:1 --command-timeout "
                                            "200ms --cacert <(cat \"$1\")",
                                "bash",
                                certificate_maker().authority("any").file});
    CHECK(r.exit_code == 69); // it asks etcd
}

TEST_CASE("-v tells why there is no secure connection", "[tool][secrets]") {
    certificate_maker maker;
    const certificate ours = maker.authority("ours");
    etcd_server etcd({}, server_tls{maker.issued_by(ours, {})});
    const std::string lock = "lock n --command-timeout 2s --endpoints " + etcd.url() + " --cacert ";
    const auto r = run_all(lock + maker.authority("theirs").file + " -v -- true");
    CHECK(r.exit_code == 69);
    CHECK(r.output.find("coetcd: " + etcd.url() +
                        ": no secure connection; check the certificates and the endpoint's name: "
                        "certificate verify failed: ") != std::string::npos);
    CHECK(r.output.find("tls_options") == std::string::npos);
    const auto well = run_all(lock + ours.file + " -v -- true");
    CHECK(well.exit_code == 0);
    CHECK(well.output.empty());
}

TEST_CASE("-v tells that a server wants a certificate", "[tool][secrets]") {
    certificate_maker maker;
    const certificate ours = maker.authority("ours");
    etcd_server etcd({}, server_tls{maker.issued_by(ours, {}), ours.file});
    // Two endpoints: the last failure of a call may be the other one's.
    const auto r = run_all("lock n --command-timeout 2s --endpoints " + etcd.url() +
                           ",https://127.0.0.1:1 --cacert " + ours.file + " -v -- true");
    CHECK(r.exit_code == 69);
    const std::string line = "coetcd: " + etcd.url() + ": no secure connection";
    const std::size_t told = r.output.find(line);
    REQUIRE(told != std::string::npos);
    CHECK(r.output.find("--cert", told) < r.output.find('\n', told));
    CHECK(r.output.find(line, told + 1) == std::string::npos); // once
}

TEST_CASE("A password file is for its owner alone", "[tool][secrets]") {
    const temporary_file file("coetcd-password");
    std::ofstream(file.path()) << "secret\n";
    const std::string line =
        "who n --endpoints 127.0.0.1:1 --command-timeout 200ms --user u --password-file ";
    for (const unsigned mode : {0644U, 0640U, 0604U, 0660U, 0602U}) {
        fs::permissions(file.path(), fs::perms(mode));
        const auto r = run_all(line + file.path().string());
        CHECK(r.exit_code == 2);
        CHECK(r.output.find("chmod 600") != std::string::npos);
        CHECK(r.output.find("secret") == std::string::npos);
    }
    for (const unsigned mode : {0600U, 0400U}) {
        fs::permissions(file.path(), fs::perms(mode));
        CHECK(run_all(line + file.path().string()).exit_code == 69); // it asks etcd
    }
    CHECK(run_all(line + "/dev/zero").output.find("is no password") != std::string::npos);
    const std::string pipe = file.path().string() + ".pipe"; // without a writer
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(ended_while_it_reads({"--user", "u", "--password-file", pipe}) == 128 + SIGTERM);
    fs::remove(pipe);
    CHECK(run_all(line + "/dev/stdin <" + file.path().string()).exit_code == 69);
    const std::string tool = COETCD_TOOL;
    CHECK(run_process({"bash", "-c", tool + " " + line + "<(echo secret) 2>/dev/null"}).exit_code ==
          69);
    const std::string script =
        "(echo secret; echo rest) | { " + tool + " " + line + "/dev/stdin; cat; }";
    process_options captured;
    captured.capture = true;
    CHECK(run_process({"sh", "-c", script + " 2>/dev/null"}, captured).output == "rest\n");
    std::ofstream(file.path()) << "first\nsecret\nrest\n";
    const auto left_by = [&](const std::string& password_file) {
        const std::string all = "{ read first; " + tool + " " + line + password_file +
                                " 3<&0; cat; } <" + file.path().string() + " 2>/dev/null";
        return run_process({"sh", "-c", all}, captured).output;
    };
    for (const std::string named : {"/dev/stdin",
                                    "/dev/../dev/stdin",
                                    "/dev/fd/0",
                                    "/proc/self/fd/0",
                                    "/proc/thread-self/fd/0",
                                    "/dev/fd/3"}) {
        CAPTURE(named);
        CHECK(left_by(named) == "rest\n");
    }
    fs::create_symlink("/dev/stdin", pipe);
    CHECK(left_by(pipe) == "rest\n");
    fs::remove(pipe);
    CHECK(left_by(file.path().string()) == "secret\nrest\n"); // opened anew
    CHECK(run_all(line + "/dev/fd/77").output.find("Bad file descriptor") != std::string::npos);
    CHECK(run_all(line + "/dev/fd/0x").output.find("cannot read") != std::string::npos);
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    REQUIRE(::chmod(pipe.c_str(), 0666) == 0);
    const std::string writes = "echo secret >" + pipe + " & ";
    const auto open = support::run_process(
        {"sh", "-c", writes + tool + " " + line + pipe + " 2>&1"}, with_etcd());
    CHECK(open.exit_code == 2);
    CHECK(open.output.find("chmod 600") != std::string::npos);
    fs::remove(pipe);
}
