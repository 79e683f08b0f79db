// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/process.hpp"
#include "tool/common.hpp"

// The manual's page of the command, line by line.

using namespace support;
using namespace tool_tests;
namespace fs = std::filesystem;

namespace {

std::string manual() {
    std::ifstream in(COETCD_MANUAL);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) {
        all.push_back(line);
    }
    return all;
}

/// The blocks of one language.
std::vector<std::string> blocks(const std::string& language) {
    std::vector<std::string> all;
    bool inside = false;
    for (const std::string& line : lines_of(manual())) {
        if (!inside && line == "```" + language) {
            all.emplace_back();
            inside = true;
        } else if (line == "```") {
            inside = false;
        } else if (inside) {
            all.back() += line + "\n";
        }
    }
    return all;
}

/// Numbers, keys and times differ from one run to the next, and so does the width of columns.
std::string without_numbers(std::string text) {
    text = std::regex_replace(text, std::regex("http://"), "");
    // In a key a lease has fewer than 16 digits if it begins with zeros.
    text = std::regex_replace(text, std::regex("[0-9a-f]{12,16}(-[0-9a-f]+-[0-9]+)?"), "LEASE");
    text = std::regex_replace(text, std::regex("[0-9]+([.][0-9]+)?"), "N");
    text = std::regex_replace(text, std::regex(" +"), " ");
    return std::regex_replace(text, std::regex(" *\n"), "\n");
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) {
        text.replace(at, what.size(), by);
    }
    return text;
}

/// A directory with the programs that the page runs, and an etcd of its own.
class scene {
public:
    scene() {
        fs::create_directory(place_);
        program("backup.sh", "echo writing with token $COETCD_FENCING_TOKEN");
        for (const char* const slow : {"slow-backup.sh", "import.sh", "scheduler"}) {
            program(slow, "exec sleep 300");
        }
        program("report", "echo report");
        program("job", "echo the job runs");
    }
    ~scene() {
        background_.clear();
        fs::remove_all(place_);
    }
    scene(const scene&) = delete;
    scene& operator=(const scene&) = delete;

    /// What it says, both outputs.
    process_result says(const std::string& line) { return run_process(shell(line), options()); }

    /// Starts it, and waits until it stands in the queue of its name.
    void start(const std::string& line) {
        const std::regex named("coetcd \\S+ (\\S+).*");
        std::smatch found;
        REQUIRE(std::regex_match(line, found, named));
        const std::string name = found[1];
        const std::size_t before = entries(name);
        background_.push_back(
            std::make_unique<background_process>(shell("exec " + line), options()));
        until(line, [&] { return entries(name) == before + 1; });
    }

    /// Starts it, and reads so many lines of it.
    std::string beginning(const std::string& line, std::size_t count) {
        background_process p(shell("exec " + line), options());
        std::string text;
        for (std::size_t i = 0; i != count; ++i) {
            text += next_line(p) + "\n";
        }
        return text;
    }

    std::string path() const { return place_.string(); }

private:
    void program(const std::string& name, const std::string& text) {
        std::ofstream(place_ / name) << "#!/bin/sh\n" << text << '\n';
        fs::permissions(place_ / name, fs::perms(0755));
    }
    words shell(const std::string& line) const {
        return {"bash", "-c", "cd '" + place_.string() + "' && exec 2>&1; " + line};
    }
    process_options options() const {
        const std::string tool = fs::path(COETCD_TOOL).parent_path().string();
        process_options how;
        how.capture = true;
        how.environment = {"ETCDCTL_ENDPOINTS=" + etcd_.url(),
                           "ETCDCTL_API=3",
                           "HOSTNAME=here",
                           "PATH=" + tool + ":" + std::getenv("PATH")};
        return how;
    }
    std::size_t entries(const std::string& name) {
        const auto found = nlohmann::json::parse(says("coetcd who --json " + name).output);
        return found["holders"].size() + found["waiters"].size();
    }

    const fs::path place_ = fs::temp_directory_path() / unique_name("manual");
    etcd_server etcd_;
    std::vector<std::unique_ptr<background_process>> background_;
};

const words subcommands{"lock", "elect", "sem", "top", "who", "ask", "unlock", "status"};

/// All `--flags` that begin a line of a help.
std::set<std::string> options_of(const std::string& help) {
    const std::regex option("\\n  (?:-[a-z], )?(--[a-z-]+)");
    std::set<std::string> all;
    for (std::sregex_iterator i(help.begin(), help.end(), option), end; i != end; ++i) {
        all.insert((*i)[1]);
    }
    return all;
}

std::string help_of(const std::string& subcommand) {
    return run({subcommand, "--help"}).output;
}

/// All `--flags` of a text.
std::set<std::string> flags_of(const std::string& text) {
    const std::regex flag("--[a-z][a-z-]+");
    std::set<std::string> all;
    for (std::sregex_iterator i(text.begin(), text.end(), flag), end; i != end; ++i) {
        all.insert(i->str());
    }
    return all;
}

/// The first cells of the rows of tables, from a heading to the next one.
std::string first_cells(const std::string& heading) {
    std::string all;
    bool inside = false;
    for (const std::string& line : lines_of(manual())) {
        if (line.starts_with("#")) {
            inside = line == heading;
        } else if (inside && line.starts_with("|")) {
            all += line.substr(0, line.find('|', 1)) + "\n";
        }
    }
    return all;
}

} // namespace

TEST_CASE("The page's session runs, and says what it says there", "[tool][manual]") {
    const std::vector<std::string> all = blocks("console");
    REQUIRE(all.size() == 1);
    scene s;
    std::vector<std::pair<std::string, std::string>> steps; // a line, and what it says
    for (const std::string& line : lines_of(all[0])) {
        if (line.starts_with("$ ")) {
            const std::size_t comment = line.find(" # ");
            steps.emplace_back(line.substr(2, comment == line.npos ? comment : comment - 2), "");
        } else {
            steps.back().second += line + "\n";
        }
    }
    REQUIRE(steps.size() > 10);
    std::string token; // that was printed last
    for (auto& [line, expected] : steps) {
        CAPTURE(line);
        line.erase(line.find_last_not_of(' ') + 1);
        std::string said;
        if (line.ends_with("&")) {
            s.start(line.substr(0, line.size() - 1));
        } else if (line.find("--listen") != line.npos) {
            said = s.beginning(line, lines_of(expected).size());
        } else if (std::regex_search(line, std::regex("^coetcd (top|who|status)"))) {
            until(line + " says " + without_numbers(expected), [&] {
                said = s.says(line).output;
                return without_numbers(said) == without_numbers(expected);
            });
        } else {
            said =
                s.says(std::regex_replace(line, std::regex("--token [0-9]+"), "--token " + token))
                    .output;
        }
        CHECK(without_numbers(said) == without_numbers(expected));
        if (line.starts_with("coetcd ask")) {
            token = said.substr(0, said.find('\n'));
        }
    }
}

TEST_CASE("The page's scripts do what it says", "[tool][manual]") {
    scene s;
    int known = 0;
    for (const std::string& block : blocks("sh")) {
        CAPTURE(block);
        if (block.starts_with("cmake -B build")) {
            ++known; // packaging/test runs these lines
        } else if (block.starts_with("etcdctl txn")) {
            ++known;
            std::ofstream(s.path() + "/guarded") << block << "echo written\n";
            CHECK(s.says("coetcd lock orders -- bash ./guarded").output == "written\n");
            CHECK(s.says("etcdctl get --print-value-only shipped/42").output == "by here\n");
            CHECK(
                s.says("COETCD_LOCK_KEY=orders COETCD_FENCING_TOKEN=1 bash ./guarded").exit_code ==
                1);
        } else if (block.starts_with("runuser -u app -- ")) {
            ++known;
            const bool may = ::geteuid() == 0; // else it is its own user
            fs::copy_file(COETCD_TOOL, s.path() + "/coetcd");
            fs::permissions(s.path() + "/coetcd", fs::perms(0755));
            const std::string line =
                replaced(block, may ? "-u app" : "runuser -u app --", may ? "-u nobody" : "");
            CHECK(s.says(replaced(line, "coetcd", "./coetcd")).output == "the job runs\n");
        }
    }
    CHECK(known == static_cast<int>(blocks("sh").size()));
}

TEST_CASE("The page's synopsis is that of the command, and its crontab runs", "[tool][manual]") {
    const std::vector<std::string> all = blocks("text");
    REQUIRE(all.size() == 2);
    std::string usage;
    for (const std::string& sub : subcommands) {
        for (const std::string& line : lines_of(help_of(sub))) {
            usage += line.starts_with("Usage: ") ? line.substr(7) + "\n" : "";
        }
    }
    CHECK(all[0] == usage);
    scene s;
    std::smatch found;
    const std::regex crontab("(\\S+ ){5} *(.*)\n");
    REQUIRE(std::regex_match(all[1], found, crontab));
    CHECK(s.says(replaced(found[2], "/usr/local/bin", s.path())).output == "report\n");
}

TEST_CASE("The page's flags are those of the command", "[tool][manual]") {
    const std::string page = manual();
    const std::set<std::string> common = flags_of(first_cells("## Connection"));
    std::set<std::string> every{"--help"};
    for (const std::string& sub : subcommands) {
        CAPTURE(sub);
        const std::string help = help_of(sub);
        std::set<std::string> its = options_of(help);
        every.insert(its.begin(), its.end());
        for (const std::string& flag : common) {
            CHECK(its.erase(flag) == 1);
        }
        // In a table of its own, or of those that run a command, or in its text.
        const bool runs = help.find("COMMAND...") != help.npos;
        std::set<std::string> written = flags_of(first_cells("### " + sub));
        for (const std::string& flag : written) {
            CHECK(its.contains(flag));
        }
        const std::size_t from = page.find("\n### " + sub + "\n");
        const std::string section = page.substr(from, page.find("\n#", from + 2) - from);
        for (const std::string& text :
             {section, runs ? first_cells("## Running a command under a lock") : std::string()}) {
            const std::set<std::string> more = flags_of(text);
            written.insert(more.begin(), more.end());
        }
        if (sub != "who") { // its --json is told of with what it prints
            for (const std::string& flag : its) {
                CAPTURE(flag);
                CHECK((flag == "--listen" || flag == "--once" || written.contains(flag)));
            }
        }
    }
    // No flag of ours that there is not. Other programs have theirs.
    std::set<std::string> others{"--root",
                                 "--scope",
                                 "--wait",
                                 "--pipe",
                                 "--odd",
                                 "--build",
                                 "--target",
                                 "--install",
                                 "--component"};
    for (const std::string& flag : flags_of(page)) {
        CAPTURE(flag);
        CHECK((every.contains(flag) || others.contains(flag)));
    }
    // Variables stand in the help, too.
    const std::string help = help_of("lock");
    const std::regex variable("ETCDCTL_[A-Z_]+");
    for (std::sregex_iterator i(page.begin(), page.end(), variable), end; i != end; ++i) {
        CHECK(help.find(i->str()) != help.npos);
    }
}

TEST_CASE("The page's exit statuses are those of the command", "[tool][manual]") {
    const std::string help = run({"--help"}).output;
    const std::string told = help.substr(help.find("Exit status"));
    std::set<std::string> in_help, in_page;
    for (const auto& [text, into] :
         {std::pair(told, &in_help), {first_cells("## Exit statuses"), &in_page}}) {
        const std::regex number("(?:^|\\n)[| ]*([0-9]+)(?= |\n)");
        for (std::sregex_iterator i(text.begin(), text.end(), number), end; i != end; ++i) {
            into->insert((*i)[1]);
        }
    }
    in_page.erase("128"); // and the signal
    CHECK(in_help == in_page);
    CHECK(in_help.size() == 10);
}

TEST_CASE("Each line of the command that the page mentions is one", "[tool][manual]") {
    const std::string page = std::regex_replace(manual(), std::regex("`\n`|\n"), " ");
    const std::regex code("`(coetcd [a-z][^`]*)`");
    int n = 0;
    for (std::sregex_iterator i(page.begin(), page.end(), code), end; i != end; ++i) {
        std::string line = (*i)[1];
        CAPTURE(line);
        line = std::regex_replace(line, std::regex("\\[PREFIX\\]"), "prefix");
        line = std::regex_replace(line, std::regex("\\bN\\b"), "3");
        words all;
        std::istringstream in(line);
        for (std::string word; in >> word;) {
            all.push_back(word);
        }
        REQUIRE(std::find(subcommands.begin(), subcommands.end(), all[1]) != subcommands.end());
        if (all.size() > 2) { // else it is the name of the subcommand
            const words rest(all.begin() + 1, all.end());
            words whole{"--endpoints", "127.0.0.1:1", "--command-timeout", "100ms"};
            whole.insert(whole.end(), rest.begin(), rest.end());
            words limited{"timeout", "5", COETCD_TOOL}; // --listen goes on through an outage
            limited.insert(limited.end(), whole.begin(), whole.end());
            const int status = run_process(limited).exit_code;
            CHECK(status == (line.find("--listen") != line.npos ? 124 : 69));
            ++n;
        }
    }
    CHECK(n > 5);
}
