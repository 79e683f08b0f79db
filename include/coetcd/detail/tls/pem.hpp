// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/wire/printable.hpp>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

/// Everything that needs OpenSSL. This file has certificates and keys, from texts and files in PEM.
namespace coetcd::detail::tls {

template<auto Free>
struct freed_by {
    void operator()(auto* object) const { Free(object); }
};
using bio = std::unique_ptr<BIO, freed_by<BIO_free_all>>;
using x509 = std::unique_ptr<X509, freed_by<X509_free>>;
using private_key = std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>>;

/// Where a text comes from, for messages.
struct origin {
    explicit origin(const char* field)
        : name(field) {}
    origin(const char* field, const std::string& file)
        : name(std::string(field) + ": \"" + wire::printable(file) + '"') {}

    /// `why` must not contain a secret.
    [[noreturn]] void refuse(const std::string& why) const {
        throw std::invalid_argument(name + ' ' + why);
    }
    /// Like `refuse`, and tells what OpenSSL has to say, too.
    [[noreturn]] void refuse_for_openssl(const std::string& why) const {
        const char* reason = ERR_reason_error_string(ERR_get_error());
        refuse(reason ? why + " (" + reason + ')' : why);
    }

    std::string name;
};

/// A larger file is no certificate and no key; a device or a pipe may have no end.
inline constexpr std::size_t largest_file = std::size_t{16} * 1024 * 1024;

/// The contents of a file. They may include a key, and so go straight to memory that is wiped, not
/// through the buffer of a stream.
inline secret read_file(const origin& from, const std::string& path) {
    struct closed {
        void operator()(std::FILE* f) const { (void)std::fclose(f); }
    };
    const std::unique_ptr<std::FILE, closed> file(std::fopen(path.c_str(), "rb"));
    if (!file) {
        from.refuse("cannot be read: " + std::generic_category().message(errno));
    }
    (void)std::setvbuf(file.get(), nullptr, _IONBF, 0);
    std::string text(16 * 1024, '\0');
    const wipe_at_end no_trace(text);
    std::size_t size = 0;
    while (const std::size_t n =
               std::fread(text.data() + size, 1, text.size() - size, file.get())) {
        size += n;
        if (size > largest_file) {
            from.refuse("is larger than 16 MiB");
        }
        if (size == text.size()) {
            std::string larger(2 * size, '\0');
            text.copy(larger.data(), size);
            text.swap(larger);
            wipe(larger);
        }
    }
    if (std::ferror(file.get()) != 0) {
        from.refuse("cannot be read: " + std::generic_category().message(errno));
    }
    text.resize(size);
    if (text.empty()) {
        from.refuse("is empty");
    }
    return secret(std::move(text));
}

inline bio open(std::string_view text) {
    return bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// What OpenSSL calls for a passphrase. Without such a function, it would ask on the terminal.
struct passphrase {
    static int give(char* out, int size, int, void* self) {
        auto& p = *static_cast<passphrase*>(self);
        p.asked = true;
        if (!p.known || p.known->size() > static_cast<std::size_t>(size)) {
            return -1;
        }
        std::copy(p.known->begin(), p.known->end(), out);
        return static_cast<int>(p.known->size());
    }
    const std::string* known = nullptr;
    bool asked = false;
};

/// All certificates in a text, in their order; anything else is skipped.
inline std::vector<x509> read_certificates(const origin& from, std::string_view text) {
    std::vector<x509> found;
    const bio in = open(text);
    passphrase none;
    ERR_clear_error();
    while (x509 next{PEM_read_bio_X509_AUX(in.get(), nullptr, &passphrase::give, &none)}) {
        found.push_back(std::move(next));
    }
    const unsigned long end = ERR_peek_last_error();
    if (ERR_GET_LIB(end) != ERR_LIB_PEM || ERR_GET_REASON(end) != PEM_R_NO_START_LINE) {
        from.refuse_for_openssl("has a certificate that cannot be read");
    }
    ERR_clear_error();
    return found;
}

/// @param fetch Called for the passphrase if the key is encrypted. OpenSSL does not call it, so it
///   may throw.
inline private_key
read_key(const origin& from, std::string_view text, const std::function<std::string()>& fetch) {
    const auto read = [&](passphrase& opens) {
        const bio in = open(text);
        ERR_clear_error();
        return private_key(PEM_read_bio_PrivateKey(in.get(), nullptr, &passphrase::give, &opens));
    };
    passphrase none;
    private_key result = read(none);
    if (!result && !none.asked) {
        from.refuse_for_openssl("holds no private key in PEM");
    }
    if (!result) {
        if (!fetch) {
            from.refuse("is encrypted: set passphrase");
        }
        std::string secret = fetch();
        const wipe_at_end no_trace(secret);
        passphrase known{&secret};
        result = read(known);
        if (!result) {
            from.refuse("cannot be opened: passphrase is wrong");
        }
    }
    ERR_clear_error();
    return result;
}

} // namespace coetcd::detail::tls
