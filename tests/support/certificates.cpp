// SPDX-License-Identifier: BSL-1.0
#include "support/certificates.hpp"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <stdlib.h>
#include <system_error>
#include <vector>

#include "support/process.hpp"

namespace support {

certificate_maker::certificate_maker() {
    auto pattern = (std::filesystem::temp_directory_path() / "coetcd-certificates-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        throw std::runtime_error("cannot create " + pattern);
    }
    directory_ = pattern;
    // The system's own would add to what is asked for.
    file("openssl.cnf", "[req]\ndistinguished_name = nobody\n[nobody]\n");
}

certificate_maker::~certificate_maker() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
}

std::string certificate_maker::file(const std::string& name, const std::string& text) const {
    const std::string path = (directory_ / name).string();
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    if (!(out << text << std::flush)) {
        throw std::runtime_error("cannot write " + path);
    }
    return path;
}

certificate certificate_maker::self_signed(const certificate_request& what) {
    return make(what, nullptr);
}

certificate certificate_maker::issued_by(const certificate& authority,
                                         const certificate_request& what) {
    return make(what, &authority);
}

certificate certificate_maker::authority(const std::string& name) {
    certificate_request what;
    what.names.clear();
    what.usage.clear();
    what.subject = "/CN=" + name;
    what.authority = true;
    return self_signed(what);
}

void certificate_maker::openssl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "openssl");
    process_options options;
    options.output_file = (directory_ / "log").string();
    if (run_process(arguments, options).exit_code != 0) {
        throw std::runtime_error("openssl: " + text_of(options.output_file));
    }
}

certificate certificate_maker::make(const certificate_request& what, const certificate* issuer) {
    const std::string base = (directory_ / std::to_string(++count_)).string();
    const certificate result{base + ".pem", base + ".key"};
    const std::string own = base + ".self";
    std::vector<std::string> make{"req", "-x509", "-out", own, "-keyout", result.key_file};
    const auto add = [&](const std::vector<std::string>& more) {
        make.insert(make.end(), more.begin(), more.end());
    };
    add({"-config", (directory_ / "openssl.cnf").string(), "-subj", what.subject});
    add({"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"});
    if (what.passphrase.empty()) {
        add({"-nodes"});
    } else {
        add({"-passout", "pass:" + what.passphrase});
    }
    if (what.authority) {
        add({"-addext", "basicConstraints=critical,CA:TRUE"});
        add({"-addext", "keyUsage=critical,keyCertSign"});
    }
    if (!what.names.empty()) {
        add({"-addext", "subjectAltName=" + what.names});
    }
    if (!what.usage.empty()) {
        add({"-addext", "extendedKeyUsage=" + what.usage});
    }
    openssl(std::move(make));

    // Only this can make one that has expired.
    std::vector<std::string> sign{"x509", "-in", own, "-out", result.file};
    sign.insert(sign.end(), {"-days", std::to_string(what.days)});
    if (issuer) {
        sign.insert(sign.end(), {"-CA", issuer->file, "-CAkey", issuer->key_file});
    } else {
        sign.insert(sign.end(), {"-signkey", result.key_file});
        sign.insert(sign.end(), {"-passin", "pass:" + what.passphrase});
    }
    openssl(std::move(sign));
    return result;
}

std::string text_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace support
