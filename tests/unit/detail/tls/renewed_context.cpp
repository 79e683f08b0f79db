// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/tls/renewed_context.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <thread>

#include "support/catch.hpp"
#include "support/certificates.hpp"

using namespace std::chrono_literals;
using coetcd::tls_options;
using coetcd::detail::time_point;
using coetcd::detail::tls::renewed_context;
using support::certificate;
using support::certificate_maker;
using support::contains;
using support::text_of;

namespace {

/// An authority, a program's certificate and its key, in files that change.
struct files {
    files() {
        options.ca_file = maker.file("ca.pem", text_of(ca.file));
        options.certificate_file = maker.file("own.pem", text_of(one.file));
        options.key_file = maker.file("key.pem", text_of(one.key_file));
    }
    /// Writes a file anew, so that its time differs.
    static void write(const std::string& file, const std::string& text) {
        const auto before = std::filesystem::last_write_time(file);
        const std::string next = file + ".next";
        {
            std::ofstream out(next);
            out << text;
        }
        std::filesystem::last_write_time(next, before + 1ms);
        std::filesystem::rename(next, file);
    }
    certificate_maker maker;
    certificate ca = maker.authority("one CA");
    certificate other_ca = maker.authority("another CA");
    certificate one = maker.issued_by(ca, {});
    certificate two = maker.issued_by(ca, {});
    tls_options options;
    time_point now{};
};

} // namespace

TEST_CASE("files that have changed are read again, at most once a second", "[tls]") {
    files f;
    renewed_context c(f.options, f.now);
    const auto first = c.find(f.now).context;
    CHECK(c.find(f.now + 10s).context == first); // nothing has changed
    f.now += 10s;
    files::write(*f.options.ca_file, text_of(f.other_ca.file));
    CHECK(c.find(f.now + 999ms).context == first);
    const auto second = c.find(f.now + 1s);
    CHECK(second.context != first);
    CHECK(second.trouble.empty());
    files::write(*f.options.certificate_file, text_of(f.two.file));
    files::write(*f.options.key_file, text_of(f.two.key_file));
    const auto third = c.find(f.now + 2s);
    CHECK(third.context != second.context);
    CHECK(third.trouble.empty());
    CHECK(c.find(f.now + 20s).context == third.context);
}

TEST_CASE("files that cannot be used leave in force what was read before", "[tls]") {
    files f;
    renewed_context c(f.options, f.now);
    const auto first = c.find(f.now).context;
    std::string trouble;
    std::function<void()> heal;
    SECTION("a key that is not that of the certificate") {
        files::write(*f.options.key_file, text_of(f.two.key_file));
        heal = [&] { files::write(*f.options.certificate_file, text_of(f.two.file)); };
        trouble = "is not the key of";
    }
    SECTION("no certificate at all") {
        files::write(*f.options.ca_file, "nothing");
        heal = [&] { files::write(*f.options.ca_file, text_of(f.ca.file)); };
        trouble = "holds no certificate";
    }
    SECTION("a file that is gone") {
        std::filesystem::rename(*f.options.ca_file, *f.options.ca_file + ".away");
        heal = [&] { std::filesystem::rename(*f.options.ca_file + ".away", *f.options.ca_file); };
        trouble = "is gone";
    }
    const auto bad = c.find(f.now + 1s);
    CHECK(bad.context == first);
    CHECK_THAT(bad.trouble, contains(trouble));
    CHECK_THAT(bad.trouble, contains("what was read before is used"));
    CHECK(c.find(f.now + 1500ms).trouble == bad.trouble); // also between two looks
    heal();
    const auto well = c.find(f.now + 2s);
    CHECK(well.trouble.empty());
    CHECK(well.context != first);
}

TEST_CASE("a directory of authorities is looked at, too", "[tls]") {
    files f;
    const std::filesystem::path all = f.maker.directory() / "authorities";
    std::filesystem::create_directory(all);
    std::filesystem::copy(f.ca.file, all / "one.pem");
    tls_options o;
    o.ca_directory = all.string();
    renewed_context c(o, f.now);
    const auto first = c.find(f.now).context;
    CHECK(c.find(f.now + 1s).context == first);
    std::filesystem::copy(f.other_ca.file, all / "two.pem");
    CHECK(c.find(f.now + 2s).context != first);
}

TEST_CASE("what cannot be read twice is read once", "[tls]") {
    files f;
    SECTION("a pipe") {
        const std::string pipe = (f.maker.directory() / "pipe").string();
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        std::thread writer([&] { std::ofstream(pipe) << text_of(f.ca.file); });
        f.options.ca_file = pipe;
        renewed_context c(f.options, f.now);
        writer.join();
        const auto first = c.find(f.now).context;
        files::write(*f.options.key_file, text_of(f.two.key_file));
        CHECK(c.find(f.now + 10s).context == first); // this would wait for ever
        CHECK(c.find(f.now + 20s).trouble.empty());
    }
    SECTION("a text") {
        tls_options o;
        o.ca = text_of(f.ca.file);
        renewed_context c(o, f.now);
        const auto first = c.find(f.now).context;
        CHECK(c.find(f.now + 10s).context == first);
    }
}

TEST_CASE("the passphrase of a key is asked for again, and may be refused", "[tls]") {
    files f;
    const certificate locked = f.maker.issued_by(f.ca, {.passphrase = "sesame"});
    f.options.certificate_file = locked.file;
    f.options.key_file = locked.key_file;
    int asked = 0;
    bool refuses = false;
    f.options.ask_passphrase = [&]() -> std::string {
        ++asked;
        if (refuses) {
            throw std::runtime_error("no vault");
        }
        return "sesame";
    };
    renewed_context c(f.options, f.now);
    CHECK(asked == 1);
    files::write(locked.key_file, text_of(locked.key_file));
    refuses = true;
    CHECK_THAT(c.find(f.now + 1s).trouble, contains("no vault"));
    refuses = false;
    CHECK(c.find(f.now + 2s).trouble.empty());
    CHECK(asked == 3);
    CHECK(c.find(f.now + 3s).trouble.empty());
    CHECK(asked == 3);
}
