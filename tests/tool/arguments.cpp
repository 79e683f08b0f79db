// SPDX-License-Identifier: BSL-1.0
#include "coetcd/arguments.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coetcd/output.hpp"
#include "support/catch.hpp"

// What a line means, whatever words it has.

namespace {

using tool::words;

/// A command with all that there is, and one that runs nothing.
struct some_command {
    std::string name, value, label, where;
    double ttl = 0;
    std::int64_t number = 0;
    bool tries = false;
    words command;
    std::map<std::string, std::string> environment;

    tool::meaning read(const words& line) {
        tool::grammar g;
        g.options = {{"--where", "LIST", "", tool::text(where), "", "", "SOME_WHERE"}};
        tool::subcommand run{"run", "", {}, {}};
        run.operands = {{"NAME", "", tool::text(name)}, {"VALUE", "", tool::text(value), false}};
        run.options = {{"--label", "TEXT", "", tool::text(label)},
                       {"--ttl", "TIME", "", tool::time(ttl)},
                       {"--number", "N", "", tool::count(number)},
                       {"--try", "", "", tool::yes(tries), "-t"}};
        run.command = &command;
        tool::subcommand show{"show", "", {{"NAME", "", tool::text(name)}}, {}};
        g.subcommands = {run, show};
        const tool::meaning found = tool::parse(g, line, [this](const char* variable) {
            const auto at = environment.find(variable);
            return at != environment.end() ? at->second.c_str() : nullptr;
        });
        return {nullptr, found.wanted != nullptr ? found.wanted->name : "help"};
    }
};

/// Why a line is wrong; empty if it is not.
std::string wrong(const words& line) {
    try {
        some_command c;
        (void)c.read(line);
        return {};
    } catch (const tool::usage_error& e) {
        return e.what();
    }
}

/// One of each printable character, and what shells, flags and libraries have a meaning for.
words odd_words() {
    words all{"",      "\n",   "a\nb",  "[a,b]", "[]",       "[0-9]", "[a",       "a]",   "{}",
              "{a,b}", "--",   "--ttl", "3s",    "-t",       "-",     "--label=", "%%",   "++",
              "a=b",   "a,b",  "$(id)", "`id`",  "\\n",      "\"a\"", "'a'",      " a ",  "\t",
              "\x01",  "\x7f", "\xff",  "\xc3",  "\xc3\xa4", "/x",    "run",      "show", "--help"};
    for (char c = ' '; c <= '~'; ++c) {
        all.emplace_back(1, c);
        all.push_back(std::string("a") + c);
        all.push_back(std::string(1, c) + c);
    }
    return all;
}

} // namespace

TEST_CASE("What stands after -- is passed on as it is", "[arguments]") {
    for (const std::string& word : odd_words()) {
        CAPTURE(word);
        some_command c;
        CHECK(c.read({"run", "n", "--", word, word, "--", word}).help == "run");
        CHECK(c.command == words{word, word, "--", word});
        CHECK(c.name == "n");
        CHECK(c.ttl == 0);
        CHECK_FALSE(c.tries);
    }
    some_command c;
    words line{"run", "n", "--"};
    words many(10'000, "[x]");
    line.insert(line.end(), many.begin(), many.end());
    (void)c.read(line);
    CHECK(c.command == many);
}

TEST_CASE("Names and values are taken as they are", "[arguments]") {
    for (const std::string& word : odd_words()) {
        CAPTURE(word);
        some_command c;
        (void)c.read({"run", "--label=" + word, "n"});
        CHECK(c.label == word);
        const bool is_flag = word.size() > 1 && word[0] == '-';
        some_command d;
        if (!is_flag) {
            (void)d.read({"run", word, "--label", word, word});
            CHECK(d.name == word);
            CHECK(d.label == word);
            CHECK(d.value == word);
        } else {
            CHECK(wrong({"run", "n", "--label", word}) != "");
        }
        some_command e;
        (void)e.read({"show", "--", word}); // here it takes any name
        CHECK(e.name == word);
    }
}

TEST_CASE("Any order of flags and names means the same", "[arguments]") {
    std::vector<words> parts{
        {"--label", "l"}, {"--ttl=3s"}, {"--try"}, {"n"}, {"--where", "u"}, {"--number", "7"}};
    std::sort(parts.begin(), parts.end());
    int n = 0;
    do {
        words line{"run"};
        for (const words& part : parts) {
            line.insert(line.end(), part.begin(), part.end());
        }
        for (const words& end : {words{}, words{"--", "echo", "--ttl", "5s", "a"}}) {
            some_command c;
            words all = line;
            all.insert(all.end(), end.begin(), end.end());
            CHECK(c.read(all).help == "run");
            CHECK((c.name == "n" && c.label == "l" && c.where == "u" && c.ttl == 3 && c.tries &&
                   c.number == 7 && c.value.empty()));
            CHECK(c.command == words(end.empty() ? end.begin() : end.begin() + 1, end.end()));
        }
        ++n;
    } while (std::next_permutation(parts.begin(), parts.end()));
    CHECK(n == 720);
    some_command c;
    CHECK(c.read({"--where", "u", "run", "n"}).help == "run");
    CHECK(c.where == "u");
}

TEST_CASE("What is before -- is read strictly", "[arguments]") {
    CHECK(wrong({}) == "there is no subcommand");
    CHECK(wrong({"--"}) == "there is no subcommand");
    CHECK(wrong({"walk"}) == "no such subcommand: 'walk'");
    CHECK(wrong({"run"}) == "run: there is no NAME");
    CHECK(wrong({"run", "--", "true"}) == "run: there is no NAME");
    CHECK(wrong({"run", "n", "--"}) == "run: there is no COMMAND after --");
    CHECK(wrong({"run", "n", "v", "rm", "x"}) ==
          "run: one word too many, behind VALUE; a COMMAND stands after --");
    CHECK(wrong({"show", "n", "m"}) == "show: one word too many, behind NAME");
    CHECK(wrong({"show", "n", "--", "m"}) == "show: one word too many, behind NAME");
    CHECK(wrong({"run", "n", "--tries"}) == "no such flag of run: '--tries'");
    CHECK(wrong({"run", "n", "--tr"}) == "no such flag of run: '--tr'");
    CHECK(wrong({"run", "n", "-try"}) == "'-t' is a word of its own: nothing belongs to it");
    CHECK(wrong({"run", "n", "-t3"}) == "'-t' is a word of its own: nothing belongs to it");
    CHECK(wrong({"run", "n", "-x3"}) == "no such flag of run: '-x'");
    CHECK(wrong({"run", "n", "--label:x"}) ==
          "'--label': its value stands behind it, or after =: --label=TEXT");
    CHECK(wrong({"run", "n", "--help=1"}) ==
          "'--help' is a word of its own: nothing belongs to it");
    CHECK(wrong({"run", "n", "--TRY"}) == "no such flag of run; all have small letters");
    CHECK(wrong({"--ttl", "3s", "run", "n"}) == "no such flag: '--ttl', before a subcommand");
    CHECK(wrong({"show", "n", "--ttl", "3s"}) == "no such flag of show: '--ttl'");
    // Each flag takes one value, and never a word that belongs to another one.
    CHECK(wrong({"run", "n", "--label"}) == "--label: has no value");
    CHECK(wrong({"run", "n", "--where", "--", "true"}) == "--where: has no value");
    CHECK(wrong({"run", "n", "--label", "--try"}) ==
          "--label: has no value; one that begins with a dash is written --label=TEXT");
    CHECK(wrong({"run", "--where", "u", "n", "v", "w"}) != "");
    CHECK(wrong({"run", "n", "--label", "a", "--label", "b"}) == "--label: is given twice");
    CHECK(wrong({"run", "n", "--try", "-t", "--try=true"}).empty());
    CHECK(wrong({"run", "n", "--try=false", "--try=0"}).empty());
    CHECK(wrong({"run", "n", "--try=false", "--try"}) == "--try: is given as true and as false");
    CHECK(wrong({"run", "n", "-t", "--try=f"}) == "--try: is given as true and as false");
    CHECK(wrong({"run", "n", "--try=perhaps"}) == "--try: neither true nor false");
    // What stands where no value belongs may be meant as one, and be a password.
    for (const words& line : {words{"run", "n", "--try", "hunter2", "x"},
                              {"run", "n", "--try=hunter2"},
                              {"run", "n", "v", "--try", "hunter2"},
                              {"run", "n", "--label", "-x:hunter2"},
                              {"run", "n", "-phunter2"},
                              {"run", "n", "--passwordhunter2"},
                              {"--where", "root", "hunter2", "run", "n"},
                              {"show", "n", "--where", "root", "hunter2"},
                              {"show", "n", "root:hunter2"},
                              {"run", "n", "--hunt=hunter2"}}) {
        CHECK(wrong(line) != "");
        CHECK(wrong(line).find("hunter") == std::string::npos);
    }
    CHECK(wrong({"run", "n", "--wh\x1b[31m"}) == "no such flag of run: '--wh'");
}

TEST_CASE("Times and numbers are whole words", "[arguments]") {
    const std::vector<std::pair<std::string, double>> good{{"90", 90},
                                                           {"0", 0},
                                                           {"1.5", 1.5},
                                                           {"90s", 90},
                                                           {"1.5m", 90},
                                                           {"250ms", .25},
                                                           {"1h30m", 5400},
                                                           {"1s500ms", 1.5},
                                                           {"2d", 172'800},
                                                           {".5s", .5}};
    for (const auto& [text, seconds] : good) {
        CAPTURE(text);
        some_command c;
        (void)c.read({"run", "n", "--ttl", text});
        CHECK(c.ttl == Approx(seconds));
    }
    for (const std::string text :
         {"",          "s",   "soon", "1x",  "-1s", "+1",  "1s ",
          " 1s",       "1 s", "0x10", "1e3", "inf", "nan", "1.2.3s",
          "1m30",      "0s5", "5 5",  "[5]", ".",   "1S",  "99999999999999999999d",
          "9999999999"}) {
        CAPTURE(text);
        CHECK(wrong({"run", "n", "--ttl=" + text}) != "");
    }
    for (const std::string text : {"",
                                   "0",
                                   "-1",
                                   "+1",
                                   "1.5",
                                   "0x1",
                                   " 1",
                                   "1 ",
                                   "1,2",
                                   "[1]",
                                   "one",
                                   "9223372036854775808"}) {
        CAPTURE(text);
        CHECK(wrong({"run", "n", "--number=" + text}) != "");
    }
}

TEST_CASE("A list has commas in between, and nothing empty", "[arguments]") {
    words all;
    tool::list(all)("a,[b,c],d");
    CHECK(all == words{"a", "[b", "c]", "d"});
    for (const char* text : {"", ",", "a,", ",a", "a,,b"}) {
        CHECK_THROWS_AS(tool::list(all)(text), tool::usage_error);
    }
    CHECK(all.size() == 4);
}

TEST_CASE("A variable is asked where there is no flag", "[arguments]") {
    some_command c;
    c.environment["SOME_WHERE"] = "[v,w]";
    (void)c.read({"run", "n"});
    CHECK(c.where == "[v,w]");
    (void)c.read({"run", "n", "--where", "u"});
    CHECK(c.where == "u");
    c.environment["SOME_WHERE"] = "";
    (void)c.read({"run", "n"});
    CHECK(c.where == "u"); // as it was
}

TEST_CASE("Help is asked for in front of --, and not behind it", "[arguments]") {
    for (const words& line :
         {words{"--help"}, {"-h"}, {"run", "--help"}, {"run", "n", "x", "y", "-h"}}) {
        some_command c;
        CHECK(c.read(line).help == "help");
    }
    some_command c;
    CHECK(c.read({"run", "n", "--", "--help"}).help == "run");
    CHECK(c.read({"run", "n", "--label=--help"}).help == "run");
    CHECK(wrong({"--where", "run", "run", "n", "--label", "-h"}) ==
          "--label: has no value; one that begins with a dash is written --label=TEXT");
    for (const std::string word : {"-h", "--help"}) { // as the value of a variable of a script
        CHECK(wrong({"run", "n", "--label", word}) ==
              "--label: has no value; one that begins with a dash is written --label=TEXT");
        for (const words& line : {words{"run", word}, {"run", "n", word}, {word}}) {
            words runs = line;
            runs.insert(runs.end(), {"--", "true"});
            CHECK(wrong(runs) == word + ": stands alone, without a -- behind it");
        }
    }
}

TEST_CASE("A library's option is told of as the command's flag", "[arguments]") {
    CHECK(tool::in_flags("if that is to be trusted, set tls_options::ca_file") ==
          "if that is to be trusted, set --cacert");
    CHECK(tool::in_flags("wants one: set tls_options::certificate_file and key_file") ==
          "wants one: set --cert and --key");
    CHECK(tool::in_flags("use such a name in the endpoint, or set tls_options::server_name") ==
          "use such a name in the endpoint");
    CHECK(tool::in_flags("endpoints: \"a:x\" has a bad port") ==
          "--endpoints: \"a:x\" has a bad port");
    CHECK(tool::in_flags("key_file: \"x\" is odd") == "--key: \"x\" is odd");
    CHECK(tool::in_flags("key_file: \"x\" is not the key of certificate_file: \"y\"") ==
          "--key: \"x\" is not the key of --cert: \"y\"");
    CHECK(tool::in_flags("etcd wants a user: set client_options::credentials") ==
          "etcd wants a user: use --user");
    CHECK(tool::in_flags("key_file: \"x\" is encrypted: set passphrase") ==
          "--key: \"x\" is encrypted: decrypt it, as with openssl pkey");
    const std::string large = "over client_options::max_answer; raise it, or read in pages, on a";
    CHECK(tool::in_flags(large + "; " + large) == "over the limit, on a; over the limit, on a");
    CHECK(tool::in_flags("it is over the limit of client_options::max_answer") ==
          "it is over the limit");
    CHECK(tool::in_flags("refused; check client_options::credentials") == "refused; check --user");
    CHECK(tool::in_flags("name: is longer than 512 bytes") == "NAME: is longer than 512 bytes");
    CHECK(tool::in_flags("n: must be") == "--permits: must be");
    CHECK(tool::in_flags("lock \"ca_file\" is lost") == "lock \"ca_file\" is lost");
    CHECK(tool::in_flags("").empty());
}
