// SPDX-License-Identifier: BSL-1.0
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "support/catch.hpp"
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
class for_nobody {
public:
    for_nobody() {
        fs::create_directory(place_);
        fs::permissions(place_, fs::perms(0755));
        fs::copy_file(COETCD_TOOL, place_ / "coetcd");
        fs::permissions(place_ / "coetcd", fs::perms(0755));
        fs::copy_file("/usr/bin/setpriv", place_ / "as");
        fs::permissions(place_ / "as", fs::perms(04755));
    }
    ~for_nobody() { fs::remove_all(place_); }
    for_nobody(const for_nobody&) = delete;
    for_nobody& operator=(const for_nobody&) = delete;

    /// The words in front of a program that nobody runs.
    words nobody() const {
        return {"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"};
    }
    std::string coetcd() const { return (place_ / "coetcd").string(); }
    /// What nobody writes in front of a program that root is to run.
    std::string as_root() const {
        return (place_ / "as").string() + " --reuid 0 --regid 0 --clear-groups";
    }
    bool works() const {
        words line = nobody();
        for (const std::string& word :
             {std::string("sh"), std::string("-c"), as_root() + " id -ru"}) {
            line.push_back(word);
        }
        process_options how;
        how.capture = true;
        return run_process(line, how).output == "0\n";
    }

private:
    const fs::path place_ = fs::temp_directory_path() / unique_name("users");
};

std::string content(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("A command that may not be stopped is told of at once, and by the status",
          "[tool][users]") {
    if (::geteuid() != 0 || !for_nobody().works()) {
        std::cout << "skipped: a command of another user: it needs root, and setuid programs\n";
        return;
    }
    const for_nobody files;
    const std::string sleeps = files.as_root() + " sh -c 'echo $$; exec sleep 300'";
    // The command itself, and one that it has started.
    for (const std::string& script :
         {"exec " + sleeps, sleeps + " & wait", "trap : TERM; " + sleeps + " & wait; wait"}) {
        CAPTURE(script);
        const std::string name = unique_name("users");
        const temporary_file said("coetcd-said");
        words line = files.nobody();
        const std::string redirected = "exec \"$@\" 2>'" + said.path().string() + "'";
        std::ofstream(said.path()).close();
        fs::permissions(said.path(), fs::perms(0666));
        for (const std::string& word : {std::string("sh"),
                                        std::string("-c"),
                                        redirected,
                                        std::string("sh"),
                                        files.coetcd(),
                                        std::string("lock"),
                                        name,
                                        std::string("--grace"),
                                        std::string("1s"),
                                        std::string("--"),
                                        std::string("sh"),
                                        std::string("-c"),
                                        script}) {
            line.push_back(word);
        }
        background_process p(line, with_etcd());
        const int pid = std::stoi(next_line(p));
        const std::string token = who(name)["holders"][0]["token"].dump();
        CHECK(run({"unlock", name, "--token", token}).exit_code == 0);
        CHECK(p.wait_for(15s) == 76);
        const std::string shouted = content(said.path());
        CHECK(shouted.find("CANNOT BE STOPPED") != std::string::npos);
        CHECK(shouted.find(std::to_string(pid)) != std::string::npos);
        CHECK_FALSE(has_ended(pid)); // as it has said
        ::kill(pid, SIGKILL);
    }
}

TEST_CASE("A signal that cannot be passed on is told of", "[tool][users]") {
    if (::geteuid() != 0 || !for_nobody().works()) {
        std::cout << "skipped: a signal for another user: it needs root, and setuid programs\n";
        return;
    }
    const for_nobody files;
    const std::string name = unique_name("users");
    words line = files.nobody();
    for (const std::string& word :
         {std::string("sh"),
          std::string("-c"),
          std::string("exec \"$@\" 2>&1"),
          std::string("sh"),
          files.coetcd(),
          std::string("lock"),
          name,
          std::string("--"),
          std::string("sh"),
          std::string("-c"),
          "exec " + files.as_root() + " sh -c 'echo $$; exec sleep 300'"}) {
        line.push_back(word);
    }
    background_process p(line, with_etcd());
    const std::string pid = next_line(p);
    p.signal(SIGTERM);
    const std::string said = next_line(p);
    CHECK(said.find("signal 15 is not passed on") != std::string::npos);
    CHECK(said.find(pid) != std::string::npos);
    CHECK(who(name)["holders"].size() == 1); // it has it, as long as its command runs
    ::kill(std::stoi(pid), SIGKILL);
    CHECK(p.wait() == 128 + SIGKILL);
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
            (void)sh.read_until("status 1");
        }
        CHECK(holder.running());
    }
    {
        typed_session sh({"bash", "-c", line + "; echo status $?"}, {environment});
        (void)sh.read_until("[y/N] ");
        sh.type("\x03");
        (void)sh.read_until("status 130");
    }
    typed_session sh({"bash", "-c", line + " | cat; echo status $?"}, {environment});
    (void)sh.read_until("[y/N] ");
    sh.type("y\n");
    (void)sh.read_until("status 0");
    CHECK(holder.wait() == 75);
}

TEST_CASE("A password is not shown, and Ctrl-C leaves the terminal as it was", "[tool][terminal]") {
    typed_session sh({"bash",
                      "-c",
                      std::string(COETCD_TOOL) + " who n --user somebody; echo status $?; stty -a"},
                     {"ETCDCTL_ENDPOINTS=127.0.0.1:1"});
    (void)sh.read_until("Password of somebody: ");
    sh.type("secr\x03");
    const std::string shown = sh.read_until("echoe");
    CHECK(shown.find("secr") == std::string::npos);
    CHECK(shown.find("status 130") != std::string::npos);
    CHECK(shown.find(" echo echoe") != std::string::npos);
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
}

TEST_CASE("A password file is for its owner alone", "[tool][secrets]") {
    const temporary_file file("coetcd-password");
    std::ofstream(file.path()) << "secret\n";
    const std::string line =
        "who n --endpoints 127.0.0.1:1 --command-timeout 200ms --user u --password-file ";
    for (const unsigned mode : {0644U, 0640U, 0604U, 0660U, 0602U}) {
        fs::permissions(file.path(), fs::perms(mode));
        const auto r = run_all(line + file.path().string());
        CHECK(r.exit_code == 70);
        CHECK(r.output.find("chmod 600") != std::string::npos);
        CHECK(r.output.find("secret") == std::string::npos);
    }
    for (const unsigned mode : {0600U, 0400U}) {
        fs::permissions(file.path(), fs::perms(mode));
        CHECK(run_all(line + file.path().string()).exit_code == 69); // it asks etcd
    }
    CHECK(run_all(line + "/dev/stdin <" + file.path().string()).exit_code == 69);
    const std::string tool = COETCD_TOOL;
    CHECK(run_process({"bash", "-c", tool + " " + line + "<(echo secret) 2>/dev/null"}).exit_code ==
          69);
}
    CHECK(run_all(line + "/dev/zero").output.find("is no password") != std::string::npos);
