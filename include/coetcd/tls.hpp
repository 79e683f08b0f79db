// SPDX-License-Identifier: BSL-1.0
#pragma once

// The only public header that needs OpenSSL: link coetcd::tls.

#include <coetcd/client.hpp>
#include <coetcd/tls_options.hpp>

#include <memory>

namespace coetcd {

/// Makes what `client_options::tls` takes; clients and threads may share it.
///
/// Connections are made with TLS 1.2 or later. The server's certificate must be valid, come from an
/// authority that is trusted, and have the endpoint's host among its subject alternative names; a
/// common name does not count. TLS sessions are not resumed: each connection verifies anew.
///
/// Reads all files now. When a connection is made, it looks whether they have changed, by their
/// times and sizes, at most once a second, and reads them again if they have; connections that
/// exist go on as they are. If the new files are unusable, the old ones stay in use, and the
/// observer is told: see `connection_report::text`. Put new files in place by renaming them. A file
/// may be a pipe; then all files are read once. One of more than 16 MiB is refused. Files are read
/// on the client's executor: where they may block, as on a network, give the texts instead.
///
/// @throws std::invalid_argument naming the field and the file, if one cannot be used.
std::shared_ptr<const tls_context> make_tls(tls_options options = {});

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/tls.hpp>
#endif
