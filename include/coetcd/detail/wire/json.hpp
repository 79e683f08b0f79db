// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/error.hpp>

#include <nlohmann/json.hpp>

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

namespace coetcd::detail::wire {

/// How deep an answer may nest; a transaction three levels deep needs 15.
inline constexpr std::size_t max_json_depth = 16;

[[noreturn]] inline void fail_protocol(const std::string& text) {
    throw error(errc::protocol_error, text);
}

[[noreturn]] inline void fail_field(const char* name, const char* expected) {
    fail_protocol(std::string("field '") + name + "' is not " + expected);
}

/// How many values an answer of that size may have. In memory each takes far more than the few
/// bytes that it may have in the text; in etcd's answers it has seven or more, on the average.
inline std::size_t max_json_values(std::size_t size) {
    return 4096 + size / 7;
}

/// True unless the JSON parser would nest too deep or make too many values, neither of which it
/// limits, or take a zero byte for the end of the text.
inline bool is_safe_to_parse(std::string_view text) {
    std::size_t left = max_json_values(text.size());
    std::size_t depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') {
                ++i;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > max_json_depth || left-- == 0) {
                return false;
            }
        } else if (c == ',') {
            if (left-- == 0) {
                return false;
            }
        } else if (c == '}' || c == ']') {
            if (depth-- == 0) {
                return false;
            }
        } else if (c == '\0') {
            return false;
        }
    }
    return true;
}

/// @returns A discarded value if `text` is no JSON, nests too deep, or has too many values.
inline nlohmann::json try_parse(std::string_view text) {
    return is_safe_to_parse(text) ? nlohmann::json::parse(text.begin(), text.end(), nullptr, false)
                                  : nlohmann::json(nlohmann::json::value_t::discarded);
}

/// Of duplicate keys the last one wins.
/// @throws error with `errc::protocol_error`, as do all functions below.
inline nlohmann::json parse(std::string_view text) {
    auto value = try_parse(text);
    if (value.is_discarded()) {
        fail_protocol("bad JSON");
    }
    return value;
}

/// @returns Null if `object` has no such field, or if the field is null: both mean the default.
inline const nlohmann::json* find_field(const nlohmann::json& object, const char* name) {
    if (!object.is_object()) {
        fail_protocol("a message is not a JSON object");
    }
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// @returns Null if the field is absent.
inline const nlohmann::json* read_object(const nlohmann::json& object, const char* name) {
    const auto* value = find_field(object, name);
    if (value && !value->is_object()) {
        fail_field(name, "an object");
    }
    return value;
}

/// A field that etcd never leaves out.
inline const nlohmann::json& require_object(const nlohmann::json& object, const char* name) {
    const auto* value = read_object(object, name);
    if (!value) {
        fail_field(name, "there");
    }
    return *value;
}

inline const nlohmann::json::array_t& read_array(const nlohmann::json& object, const char* name) {
    static const nlohmann::json::array_t none;
    const auto* value = find_field(object, name);
    if (!value) {
        return none;
    }
    if (!value->is_array()) {
        fail_field(name, "an array");
    }
    return value->get_ref<const nlohmann::json::array_t&>();
}

/// Bytes that are not a field but an element of the array `name`.
inline std::string to_bytes(const nlohmann::json& value, const char* name) {
    std::string bytes;
    if (!value.is_string() || !decode_base64(value.get_ref<const std::string&>(), bytes)) {
        fail_field(name, "base64");
    }
    return bytes;
}

inline std::string read_bytes(const nlohmann::json& object, const char* name) {
    const auto* value = find_field(object, name);
    return value ? to_bytes(*value, name) : std::string();
}

inline std::string read_text(const nlohmann::json& object, const char* name) {
    const auto* value = find_field(object, name);
    if (!value) {
        return {};
    }
    if (!value->is_string()) {
        fail_field(name, "a string");
    }
    return value->get<std::string>();
}

inline bool read_bool(const nlohmann::json& object, const char* name) {
    const auto* value = find_field(object, name);
    if (!value) {
        return false;
    }
    if (!value->is_boolean()) {
        fail_field(name, "true or false");
    }
    return value->get<bool>();
}

/// An integer, written as a number or as a string, that fits into `Integer`.
template<std::integral Integer>
std::optional<Integer> to_integer(const nlohmann::json& value) {
    if (value.is_number_unsigned()) {
        const auto number = value.get<std::uint64_t>();
        return std::in_range<Integer>(number) ? std::optional(static_cast<Integer>(number))
                                              : std::nullopt;
    }
    if (value.is_number_integer()) {
        const auto number = value.get<std::int64_t>();
        return std::in_range<Integer>(number) ? std::optional(static_cast<Integer>(number))
                                              : std::nullopt;
    }
    if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        const char* const end = text.data() + text.size();
        Integer number{};
        const auto [stop, failure] = std::from_chars(text.data(), end, number);
        return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
    }
    return std::nullopt;
}

template<std::integral Integer>
Integer read_integer(const nlohmann::json& object, const char* name) {
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

inline std::int64_t read_int64(const nlohmann::json& object, const char* name) {
    return read_integer<std::int64_t>(object, name);
}

inline std::uint64_t read_uint64(const nlohmann::json& object, const char* name) {
    return read_integer<std::uint64_t>(object, name);
}

/// A version or a count.
inline std::int64_t read_count(const nlohmann::json& object, const char* name) {
    const auto number = read_int64(object, name);
    if (number < 0) {
        fail_field(name, "zero or more");
    }
    return number;
}

/// A revision. There is always a next one.
inline std::int64_t read_revision(const nlohmann::json& object, const char* name) {
    const auto number = read_count(object, name);
    if (number == std::numeric_limits<std::int64_t>::max()) {
        fail_field(name, "a revision");
    }
    return number;
}

/// @param names The values by name. The first is the default, and the index is etcd's number.
template<class Enum>
Enum read_enum(const nlohmann::json& object,
               const char* name,
               std::initializer_list<std::pair<std::string_view, Enum>> names) {
    const auto* value = find_field(object, name);
    if (!value) {
        return names.begin()->second;
    }
    if (value->is_string()) {
        for (const auto& [text, result] : names) {
            if (value->get_ref<const std::string&>() == text) {
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
