// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/new_file.hpp>

#include <boost/system/errc.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdlib.h>
#include <string>
#include <sys/stat.h>

#include "support/catch.hpp"

using coetcd::detail::net::new_file;
namespace fs = std::filesystem;

namespace {

class directory_of_files {
public:
    directory_of_files() {
        auto pattern = (fs::temp_directory_path() / "coetcd-new-file-XXXXXX").string();
        path = ::mkdtemp(pattern.data());
    }
    directory_of_files(const directory_of_files&) = delete;
    directory_of_files& operator=(const directory_of_files&) = delete;
    ~directory_of_files() { fs::remove_all(path); }
    std::size_t files() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(path), fs::directory_iterator()));
    }
    fs::path path;
};

std::string contents_of(const fs::path& of) {
    std::ifstream in(of, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

} // namespace

TEST_CASE("a new file has its name once it is whole", "[new_file]") {
    const directory_of_files in;
    const fs::path name = in.path / "file";
    const std::string large(20 * 1024 * 1024 + 1, 'x'); // flushed several times
    {
        new_file f(name, 0x1234);
        const fs::path part = in.path / "file.0000000000001234.part";
        CHECK(fs::exists(part));
        f.write("a");
        f.write(large);
        CHECK_FALSE(fs::exists(name));
        struct ::stat s {};
        REQUIRE(::stat(part.c_str(), &s) == 0);
        CHECK((s.st_mode & 0777) == 0600);
        f.commit();
        CHECK_FALSE(fs::exists(part));
    }
    CHECK(contents_of(name) == "a" + large);
    CHECK(in.files() == 1);
}

TEST_CASE("a new file that is given up leaves what was there before", "[new_file]") {
    const directory_of_files in;
    const fs::path name = in.path / "file";
    std::ofstream(name) << "before";
    {
        new_file f(name, 1);
        f.write("after");
        CHECK(in.files() == 2);
    }
    CHECK(contents_of(name) == "before");
    CHECK(in.files() == 1);
    {
        new_file f(name, 1);
        f.write("after");
        f.commit();
    }
    CHECK(contents_of(name) == "after");
    CHECK(in.files() == 1);
}

TEST_CASE("a file that cannot be written says which, and why", "[new_file]") {
    const directory_of_files in;
    const auto failure = [](auto work) {
        try {
            work();
        } catch (const coetcd::error& e) {
            return e;
        }
        throw std::logic_error("it has not failed");
    };
    const auto missing = failure([&] { new_file f(in.path / "none" / "file", 1); });
    CHECK(missing.code() == boost::system::errc::no_such_file_or_directory);
    CHECK_THAT(missing.what(), support::contains("none/file."));
    const new_file first(in.path / "file", 7);
    const auto twice = failure([&] { new_file f(in.path / "file", 7); });
    CHECK(twice.code() == boost::system::errc::file_exists);
    CHECK(in.files() == 1); // that of the first one stays

    fs::create_directory(in.path / "directory");
    new_file onto(in.path / "directory", 1);
    onto.write("x");
    const auto renamed = failure([&] { onto.commit(); });
    CHECK_THAT(renamed.what(), support::contains("could not be replaced"));
}
