// SPDX-License-Identifier: BSL-1.0
// What this library is made of, and with whom its tests talk: as written in its own files.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace fs = std::filesystem;

namespace {

const fs::path root = COETCD_SOURCE_DIRECTORY;

std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// The files below some folders that a condition holds for.
template<class Condition>
std::vector<fs::path> files(const std::vector<std::string>& folders, Condition wanted) {
    std::vector<fs::path> out;
    for (const std::string& folder : folders) {
        for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
            if (entry.is_regular_file() && wanted(entry.path())) {
                out.push_back(entry.path());
            }
        }
    }
    return out;
}

bool is_cpp(const fs::path& file) {
    return file.extension() == ".cpp" || file.extension() == ".hpp";
}
bool is_cmake(const fs::path& file) {
    return file.filename() == "CMakeLists.txt" || file.extension() == ".cmake" ||
           file.extension() == ".in";
}

/// All that a pattern finds in a text; its first group, if it has one.
std::set<std::string> found(const std::string& text, const std::string& pattern) {
    const std::regex expression(pattern, std::regex::icase);
    std::set<std::string> out;
    for (std::sregex_iterator i(text.begin(), text.end(), expression), end; i != end; ++i) {
        out.insert((*i)[expression.mark_count() == 0 ? 0 : 1]);
    }
    return out;
}

const std::set<std::string> nothing;

} // namespace

TEST_CASE("sec.supply_chain: nothing is downloaded to build the library or its tests",
          "[security]") {
    std::vector<fs::path> all = files({"cmake", "examples", "tests"}, is_cmake);
    all.push_back(root / "CMakeLists.txt");
    CHECK(all.size() > 8);
    for (const fs::path& file : all) {
        INFO(file);
        const std::string downloads = "FetchContent|ExternalProject|\\bDOWNLOAD\\b|CPM\\w*|"
                                      "git (?:clone|submodule)|\\b(?:curl|wget|pip3?|npm|conan|"
                                      "vcpkg)\\b|https?://";
        CHECK(found(text_of(file), downloads) == nothing);
    }
    CHECK_FALSE(fs::exists(root / ".gitmodules"));
}

TEST_CASE("sec.supply_chain: what is installed are Debian's packages", "[security]") {
    const std::string script = text_of(root / "cmake/debian-deps.sh");
    CHECK(found(script,
                "curl|wget|https?://|\\bpip3?\\b|add-apt-repository|apt-key|"
                "sources\\.list|allow-unauthenticated") == nothing);
    CHECK(found(script, "apt\\[@\\]}\" install [^\\n]*") ==
          std::set<std::string>{"apt[@]}\" install -y --no-remove --no-install-recommends \"$@\" "
                                ">/dev/null || exit"});
    const std::set<std::string> scripts_with_apt = [] {
        std::set<std::string> out;
        for (const fs::path& file : files({"cmake", "tests", "examples"}, [](const fs::path& f) {
                 return f.filename() == "run" || f.extension() == ".sh";
             })) {
            if (found(text_of(file), "apt-get|apt install") != nothing &&
                found(text_of(file), "command -v apt-get") == nothing) {
                out.insert(file.filename());
            }
        }
        return out;
    }();
    CHECK(scripts_with_apt == nothing);
    // Other etcds, for the tests alone, are Go's: checked by its sums.
    const std::string versions = text_of(root / "tests/support/etcd_versions.sh");
    CHECK(found(versions, "GONOSUM\\w*|GOSUMDB=off|GOFLAGS=-insecure|GOINSECURE|curl|wget") ==
          nothing);
}

TEST_CASE("sec.supply_chain: what is downloaded is verified", "[security]") {
    std::vector<fs::path> scripts =
        files({".ci", "cmake", "docs", "examples", "packaging", "tests"}, [](const fs::path& f) {
            return f.extension() == ".sh" || f.extension() == "" || f.extension() == ".py";
        });
    CHECK(scripts.size() > 8);
    int pips = 0;
    for (const fs::path& file : scripts) {
        INFO(file);
        const std::string text = text_of(file);
        // Of other machines nothing but what apt and pip fetch, which verify it.
        CHECK(found(text, "(?:curl|wget)[^\\n]*(?:https?:|mirror)(?!//127)[^\\n]*") == nothing);
        CHECK(found(text, "trusted=yes|allow-unauthenticated=true|--no-check|--insecure") ==
              nothing);
        for (const std::string& line : found(text, "debootstrap --[^\\n]*")) {
            CHECK(line.find("--force-check-gpg --keyring=") != line.npos);
        }
        for (const std::string& line :
             found(text, "bin/pip\"?(?: -\\S+)* install(?:\\\\\\n|[^\\n])*")) {
            CHECK(line.find("--require-hashes") != line.npos);
            CHECK(line.find("--only-binary=:all:") !=
                  line.npos); // else it builds with what has none
            ++pips;
        }
        // In a directory that all can write to, only mktemp has a name first.
        CHECK(found(text, "(?:>|mkdir |touch |=)\"?(?:/var)?/tmp\\b[^\\n]*") == nothing);
    }
    CHECK(pips == 1);
    for (const fs::path& file : files({"examples", "include", "tests"}, is_cpp)) {
        INFO(file);
        CHECK(found(text_of(file), "temp_directory_path\\(\\) */[^;]*getpid") == nothing);
    }
    std::istringstream lines(text_of(root / "packaging/conan/requirements.txt"));
    int hashed = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line[0] != '#') {
            INFO(line);
            CHECK(
                std::regex_match(line, std::regex("[a-z0-9-]+==\\S+ --hash=sha256:[0-9a-f]{64}")));
            ++hashed;
        }
    }
    CHECK(hashed > 3);
}

TEST_CASE("sec.supply_chain: the library includes what its documentation names", "[security]") {
    std::set<std::string> from;
    for (const fs::path& file : files({"include"}, is_cpp)) {
        const auto some = found(text_of(file), "#include <(boost|nlohmann|openssl|coetcd|[a-z]+)/");
        from.insert(some.begin(), some.end());
    }
    CHECK(from ==
          std::set<std::string>{"boost", "coetcd", "netinet", "nlohmann", "openssl", "sys"});
    // OpenSSL in one place, so that others do without it. And the system's headers: none of those
    // of C++ ends with .h.
    for (const fs::path& file : files({"include"}, is_cpp)) {
        const fs::path name = fs::relative(file, root / "include/coetcd");
        const bool tls =
            name == "tls.hpp" || name == "impl/tls.hpp" || name.parent_path() == "detail/tls";
        const auto of_c = found(text_of(file), "# *include *[<\"](?!openssl/)([^>\"]*[.]h)[>\"]");
        INFO(name);
        CHECK((tls || found(text_of(file), "<openssl/|asio/ssl") == nothing));
        const bool system = name == "detail/net/system.hpp" || name == "detail/net/new_file.hpp";
        CHECK((of_c != nothing) == system);
    }
}

TEST_CASE("sec.supply_chain: servers of the tests are reached from this machine alone",
          "[security]") {
    const auto all = files({"tests", "examples"}, [](const fs::path& f) {
        return (is_cpp(f) || f.filename() == "run" || f.extension() == ".sh") &&
               f.filename() != "supply_chain.cpp";
    });
    CHECK(all.size() > 60);
    int listening = 0;
    for (const fs::path& file : all) {
        INFO(file);
        const std::string text = text_of(file);
        CHECK(found(text,
                    "\\b0\\.0\\.0\\.0\\b|\\[::\\]|\\bINADDR_ANY\\b|address_v[46]::any|"
                    "tcp::v[46]\\(\\)") == nothing);
        for (const std::string& acceptor :
             found(text, "acceptor\\w*[({]\\w+, (?:\\w+::)*endpoint\\(([^;\\n]*)")) {
            INFO(acceptor);
            CHECK(acceptor.find("loopback") != acceptor.npos);
            ++listening;
        }
    }
    CHECK(listening > 4);
}

TEST_CASE("sec.supply_chain: what is released is hardened", "[security]") {
    const std::string presets = text_of(root / "CMakePresets.json");
    const auto release = presets.find("\"name\": \"release\"");
    REQUIRE(release != presets.npos);
    const std::string flags = presets.substr(release, presets.find(']', release) - release);
    CHECK(flags.find("-fstack-protector-strong") != flags.npos);
    CHECK(flags.find("-D_FORTIFY_SOURCE=2") != flags.npos); // works with optimisation alone
    CHECK(flags.find("\"CMAKE_BUILD_TYPE\": \"Release\"") != flags.npos);
    // The command in any build, with all that it is linked with of ours.
    const std::string harden = text_of(root / "examples/CMakeLists.txt");
    for (const char* flag :
         {"-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-z,relro,-z,now"}) {
        CHECK(harden.find(flag) != harden.npos);
    }
    CHECK(text_of(root / "examples/coetcd/CMakeLists.txt")
              .find("coetcd_harden(coetcd_tool coetcd_tls_compiled coetcd_compiled)") !=
          std::string::npos);
#if defined(__OPTIMIZE__) && defined(_FORTIFY_SOURCE)
    CHECK(_FORTIFY_SOURCE >= 2);
#endif
}
