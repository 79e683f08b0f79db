// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace coetcd {

/// Whom to trust, and who we are. All texts and files are in PEM. The destructor wipes `key` and
/// `passphrase`. What `make_tls` makes keeps a copy for as long as it lives, if files are named.
class tls_options {
public:
    tls_options() {} // user-provided, so that this is no aggregate
    tls_options(const tls_options&) = default;
    tls_options& operator=(const tls_options&) = default;
    ~tls_options();

    // Whom to trust. Certificates of authorities, or of the servers themselves, from any of these
    // places; from the system if none is given.

    std::optional<std::string> ca_file;
    std::optional<std::string> ca_directory; ///< All files in it; the names do not matter.
    std::optional<std::string> ca;           ///< The text itself.

    // Who we are, for servers that want a client certificate.

    /// The certificate, followed by those between it and the authority that the servers trust.
    std::optional<std::string> certificate_file;
    std::optional<std::string> certificate; ///< The text itself.
    std::optional<std::string> key_file;
    std::optional<std::string> key; ///< The text itself.
    /// Decrypts the key.
    std::optional<std::string> passphrase;
    /// Called for the passphrase when it is needed and `passphrase` is not set: by `make_tls`, and
    /// on a client's executor when the file of the key has changed. It must not block there. Its
    /// result is wiped after use.
    std::function<std::string()> ask_passphrase;

    /// The name or address that the certificate of every server must have, instead of the one in
    /// its endpoint. A name is also sent to the server.
    std::optional<std::string> server_name;

    /// Accept any server: to find out what is wrong, never in production.
    bool insecure_skip_verify = false;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/tls_options.hpp>
#endif
