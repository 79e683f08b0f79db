// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/error.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace coetcd::detail::wire {

/// How deep an answer may nest; a transaction three levels deep needs 15.
inline constexpr std::size_t max_json_depth = 16;

[[noreturn]] inline void fail_protocol(const std::string& text) {
    throw error(errc::protocol_error, text);
}

[[noreturn]] inline void fail_field(const char* name, const char* expected) {
    fail_protocol(std::string("field '") + name + "' is not " + expected);
}

/// How many values an answer of this size may have. In memory a value takes far more than the few
/// bytes that it may have in the text; in etcd's answers it has seven or more on average.
inline std::size_t max_json_values(std::size_t size) {
    return 4096 + size / 7;
}

/// A value of a JSON text. Its contents follow it in memory, in the order of the text.
struct json_value {
    enum class kind : std::uint8_t {
        null,
        boolean,  ///< `number` is 1 if it is true.
        negative, ///< `number` has the bits of a signed integer.
        natural,
        fraction, ///< No message has any; its value is not kept.
        string,
        array, ///< `number` is how many values are directly in it, as for an object.
        object,
    };

    kind type = kind::null;
    std::string_view name; ///< In an object.
    std::string_view text; ///< Of a string, with no escapes left.
    std::uint64_t number = 0;
    std::size_t extent = 1; ///< How many values it has, itself included.

    bool is_null() const { return type == kind::null; }
    bool is_string() const { return type == kind::string; }
    bool is_object() const { return type == kind::object; }
};

/// The values that are directly in an array or an object.
class json_items {
public:
    class iterator {
    public:
        explicit iterator(const json_value* at)
            : at_(at) {}
        const json_value& operator*() const { return *at_; }
        iterator& operator++() {
            at_ += at_->extent;
            return *this;
        }
        bool operator==(const iterator&) const = default;

    private:
        const json_value* at_;
    };

    json_items() = default;
    explicit json_items(const json_value& whole)
        : first_(&whole + 1)
        , last_(&whole + whole.extent)
        , size_(static_cast<std::size_t>(whole.number)) {}
    iterator begin() const { return iterator(first_); }
    iterator end() const { return iterator(last_); }
    std::size_t size() const { return size_; }

private:
    const json_value* first_ = nullptr;
    const json_value* last_ = nullptr;
    std::size_t size_ = 0;
};

/// A JSON text that was read, in two blocks of memory however many values it has.
class json {
public:
    json(json&&) noexcept = default;
    json& operator=(json&&) noexcept = default;
    const json_value& root() const { return values_.front(); }

private:
    friend class json_reader;
    json() = default;
    std::vector<json_value> values_;
    std::vector<char> characters_; // of all strings: no more than the text has
};

/// What nlohmann_json calls while it reads a text. That library limits neither the depth nor the
/// number of values; a function here returns false to stop it.
class json_reader {
public:
    explicit json_reader(std::size_t size)
        : left_(max_json_values(size)) {
        result_.values_.reserve(16 + size / 16);
        result_.characters_.reserve(size);
    }
    json take() && { return std::move(result_); }

    bool null() { return add(json_value::kind::null); }
    bool boolean(bool value) { return add(json_value::kind::boolean, value ? 1 : 0); }
    bool number_integer(std::int64_t value) {
        return add(json_value::kind::negative, static_cast<std::uint64_t>(value));
    }
    bool number_unsigned(std::uint64_t value) { return add(json_value::kind::natural, value); }
    bool number_float(double, const std::string&) { return add(json_value::kind::fraction); }
    bool string(std::string& text) {
        if (!add(json_value::kind::string)) {
            return false;
        }
        result_.values_.back().text = keep(text);
        return true;
    }
    bool binary(nlohmann::json::binary_t&) { return false; } // not in a text
    bool start_object(std::size_t) { return start(json_value::kind::object); }
    bool key(std::string& text) {
        name_ = keep(text);
        return true;
    }
    bool end_object() { return end(); }
    bool start_array(std::size_t) { return start(json_value::kind::array); }
    bool end_array() { return end(); }
    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) {
        return false;
    }

private:
    bool add(json_value::kind type, std::uint64_t number = 0) {
        if (left_-- == 0) {
            return false;
        }
        if (depth_ != 0) {
            ++result_.values_[open_[depth_ - 1]].number;
        }
        json_value& value = result_.values_.emplace_back();
        value.type = type;
        value.name = std::exchange(name_, {});
        value.number = number;
        return true;
    }
    bool start(json_value::kind type) {
        if (depth_ == max_json_depth || !add(type)) {
            return false;
        }
        open_[depth_++] = result_.values_.size() - 1;
        return true;
    }
    bool end() {
        const std::size_t at = open_[--depth_];
        result_.values_[at].extent = result_.values_.size() - at;
        return true;
    }
    // The room is there: an escape is longer than what it stands for.
    std::string_view keep(std::string_view text) {
        auto& all = result_.characters_;
        const std::size_t at = all.size();
        all.insert(all.end(), text.begin(), text.end());
        return {all.data() + at, text.size()};
    }

    json result_;
    std::size_t left_;
    std::string_view name_; // of the next value
    std::size_t depth_ = 0;
    std::array<std::size_t, max_json_depth> open_{};
};

/// @returns Nothing if `text` is no JSON, nests too deep, or has too many values.
inline std::optional<json> try_parse(std::string_view text) {
    json_reader reader(text.size());
    // The parser would take a zero byte for the end of the text.
    if (text.find('\0') != text.npos ||
        !nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
        return std::nullopt;
    }
    return std::move(reader).take();
}

/// The last one of duplicate keys counts.
/// @throws error with `errc::protocol_error`, as do all functions below.
inline json parse(std::string_view text) {
    auto value = try_parse(text);
    if (!value) {
        fail_protocol("bad JSON");
    }
    return *std::move(value);
}

/// @returns Null if `object` has no such field, or if the field is null: both mean the default.
inline const json_value* find_field(const json_value& object, const char* name) {
    if (!object.is_object()) {
        fail_protocol("a message is not a JSON object");
    }
    const json_value* found = nullptr;
    for (const auto& value : json_items(object)) {
        if (value.name == name) {
            found = &value;
        }
    }
    return !found || found->is_null() ? nullptr : found;
}

/// @returns Null if the field is absent.
inline const json_value* read_object(const json_value& object, const char* name) {
    const auto* value = find_field(object, name);
    if (value && !value->is_object()) {
        fail_field(name, "an object");
    }
    return value;
}

/// A field that etcd never leaves out.
inline const json_value& require_object(const json_value& object, const char* name) {
    const auto* value = read_object(object, name);
    if (!value) {
        fail_field(name, "there");
    }
    return *value;
}

inline json_items read_array(const json_value& object, const char* name) {
    const auto* value = find_field(object, name);
    if (!value) {
        return {};
    }
    if (value->type != json_value::kind::array) {
        fail_field(name, "an array");
    }
    return json_items(*value);
}

/// Bytes that are not a field but an element of the array `name`.
inline std::string to_bytes(const json_value& value, const char* name) {
    std::string bytes;
    if (!value.is_string() || !decode_base64(value.text, bytes)) {
        fail_field(name, "base64");
    }
    return bytes;
}

inline std::string read_bytes(const json_value& object, const char* name) {
    const auto* value = find_field(object, name);
    return value ? to_bytes(*value, name) : std::string();
}

/// Text that is not a field but an element of the array `name`.
inline std::string to_text(const json_value& value, const char* name) {
    if (!value.is_string()) {
        fail_field(name, "a string");
    }
    return std::string(value.text);
}

inline std::string read_text(const json_value& object, const char* name) {
    const auto* value = find_field(object, name);
    return value ? to_text(*value, name) : std::string();
}

inline bool read_bool(const json_value& object, const char* name) {
    const auto* value = find_field(object, name);
    if (!value) {
        return false;
    }
    if (value->type != json_value::kind::boolean) {
        fail_field(name, "true or false");
    }
    return value->number != 0;
}

/// An integer, written as a number or as a string, that fits into `Integer`.
template<std::integral Integer>
std::optional<Integer> to_integer(const json_value& value) {
    const auto fit = [](auto number) {
        return std::in_range<Integer>(number) ? std::optional(static_cast<Integer>(number))
                                              : std::nullopt;
    };
    switch (value.type) {
    case json_value::kind::natural:
        return fit(value.number);
    case json_value::kind::negative:
        return fit(static_cast<std::int64_t>(value.number));
    case json_value::kind::string: {
        const char* const end = value.text.data() + value.text.size();
        Integer number{};
        const auto [stop, failure] = std::from_chars(value.text.data(), end, number);
        return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
    }
    default:
        return std::nullopt;
    }
}

template<std::integral Integer>
Integer read_integer(const json_value& object, const char* name) {
    const auto* value = find_field(object, name);
    if (!value) {
        return 0;
    }
    const auto number = to_integer<Integer>(*value);
    if (!number) {
        fail_field(name, "an integer in range");
    }
    return *number;
}

inline std::int64_t read_int64(const json_value& object, const char* name) {
    return read_integer<std::int64_t>(object, name);
}

inline std::uint64_t read_uint64(const json_value& object, const char* name) {
    return read_integer<std::uint64_t>(object, name);
}

/// A version or a count.
inline std::int64_t read_count(const json_value& object, const char* name) {
    const auto number = read_int64(object, name);
    if (number < 0) {
        fail_field(name, "zero or more");
    }
    return number;
}

/// A revision, which always has a next one.
inline std::int64_t read_revision(const json_value& object, const char* name) {
    const auto number = read_count(object, name);
    if (number == std::numeric_limits<std::int64_t>::max()) {
        fail_field(name, "a revision");
    }
    return number;
}

/// @param names The values by name. The first is the default, and the index is etcd's number.
template<class Enum>
Enum read_enum(const json_value& object,
               const char* name,
               std::initializer_list<std::pair<std::string_view, Enum>> names) {
    const auto* value = find_field(object, name);
    if (!value) {
        return names.begin()->second;
    }
    if (value->is_string()) {
        for (const auto& [text, result] : names) {
            if (value->text == text) {
                return result;
            }
        }
    } else if (const auto number = to_integer<std::size_t>(*value);
               number && *number < names.size()) {
        return names.begin()[*number].second;
    }
    fail_field(name, "known");
}

} // namespace coetcd::detail::wire
