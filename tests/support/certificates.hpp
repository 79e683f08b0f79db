// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace support {

/// A certificate and its key, as files in PEM.
struct certificate {
    std::string file;
    std::string key_file;
};

/// What a certificate says.
struct certificate_request {
    std::string names = "DNS:localhost,IP:127.0.0.1"; ///< As `openssl` wants them; may be empty.
    std::string subject = "/O=coetcd";
    std::string usage = "serverAuth,clientAuth"; ///< etcd's gateway is its own client.
    int days = 30;                               ///< How long it is valid; -1: it has expired.
    bool authority = false;                      ///< It may sign others.
    std::string passphrase{};                    ///< Of the key; empty: it is not encrypted.
};

/// Makes certificates, with the program `openssl`, in a temporary directory that goes with it.
class certificate_maker {
public:
    certificate_maker();
    certificate_maker(const certificate_maker&) = delete;
    certificate_maker& operator=(const certificate_maker&) = delete;
    ~certificate_maker();

    certificate self_signed(const certificate_request& what);
    certificate issued_by(const certificate& authority, const certificate_request& what);

    certificate authority(const std::string& name);

    /// Writes a file there, and returns its path.
    std::string file(const std::string& name, const std::string& text) const;
    const std::filesystem::path& directory() const { return directory_; }

private:
    void openssl(std::vector<std::string> arguments) const;
    certificate make(const certificate_request& what, const certificate* issuer);

    std::filesystem::path directory_;
    int count_ = 0;
};

/// What a file holds.
std::string text_of(const std::string& file);

} // namespace support
