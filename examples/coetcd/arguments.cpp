// SPDX-License-Identifier: BSL-1.0
#include "arguments.hpp"

#include <coetcd/printable.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace tool {

namespace {

std::string quoted(const std::string& word) {
    return '\'' + coetcd::printable(word) + '\'';
}

/// Digits, with at most one dot among them, at the front of a text, which they are taken from.
std::optional<double> decimal_in(std::string_view& text) {
    const std::string_view digits =
        text.substr(0, std::min(text.find_first_not_of("0123456789."), text.size()));
    double number = 0;
    double unit = 1;
    bool is_fraction = false, any = false;
    for (const char c : digits) {
        if (c == '.') {
            if (is_fraction) {
                return std::nullopt;
            }
            is_fraction = true;
            continue;
        }
        any = true;
        unit = is_fraction ? unit / 10 : 1;
        number = is_fraction ? number + (c - '0') * unit : number * 10 + (c - '0');
    }
    text.remove_prefix(digits.size());
    return any ? std::optional(number) : std::nullopt;
}

double seconds_in(const std::string& text) {
    static const std::map<std::string_view, double> units{
        {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    double total = 0;
    std::string_view rest = text;
    bool is_first = true;
    do {
        const std::optional<double> number = decimal_in(rest);
        const std::string_view name =
            rest.substr(0, std::min(rest.find_first_of("0123456789."), rest.size()));
        const auto unit = units.find(name);
        const bool alone = std::exchange(is_first, false) && rest.empty(); // `90`
        if (!number || (unit == units.end() && !alone)) {
            throw usage_error("not a time: " + quoted(text) + "; write 90s, 1.5m, 1h30m, 250ms");
        }
        total += *number * (alone ? 1 : unit->second);
        rest.remove_prefix(name.size());
    } while (!rest.empty());
    if (total > 9e9) { // etcd's limit of a ttl
        throw usage_error("too long a time: " + quoted(text));
    }
    return total;
}

std::int64_t count_in(const std::string& text, std::int64_t least) {
    const std::optional<std::int64_t> number = number_in(text);
    if (!number || *number < least) {
        throw usage_error("not a number from " + std::to_string(least) + ": " + quoted(text));
    }
    return *number;
}

bool is_true(const std::string& value) {
    static const std::set<std::string_view> good{"1", "t", "T", "true", "TRUE", "True"};
    static const std::set<std::string_view> bad{"0", "f", "F", "false", "FALSE", "False"};
    if (!good.contains(value) && !bad.contains(value)) {
        throw usage_error("neither true nor false"); // perhaps a password
    }
    return good.contains(value);
}

bool asks_for_help(const std::string& word) {
    return word == "--help" || word == "-h";
}

/// Puts two columns of text beside each other, the second one in lines of its own.
std::string beside(const std::string& left, const std::string& right) {
    constexpr std::size_t at = 32, width = 96;
    std::string out = "  " + left;
    out += out.size() + 2 > at ? "\n" + std::string(at, ' ') : std::string(at - out.size(), ' ');
    std::size_t column = at;
    std::string_view rest = right;
    while (!rest.empty()) {
        const std::string_view word = rest.substr(0, std::min(rest.find(' '), rest.size()));
        if (column + word.size() > width && column != at) {
            out += "\n" + std::string(at, ' ');
            column = at;
        }
        out.append(column == at ? "" : " ").append(word);
        column += word.size() + 1;
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    }
    return out + "\n";
}

std::string help_of(const std::vector<option>& options) {
    std::string out;
    for (const option& o : options) {
        std::string left = o.letter.empty() ? o.name : o.letter + ", " + o.name;
        left += o.value.empty() ? "" : " " + o.value;
        std::string right = o.help;
        right += o.initial.empty() ? "" : "; by default " + o.initial;
        right += o.variable.empty() ? "" : " (env: " + o.variable + ")";
        out += beside(left, right);
    }
    return out;
}

std::string help_of(const grammar& g, const subcommand* s) {
    std::string out;
    if (s == nullptr) {
        out = g.help + "\n\nUsage: coetcd SUBCOMMAND [flags]\n\nSubcommands, each with a --help:\n";
        for (const subcommand& each : g.subcommands) {
            out += beside(each.name, each.help);
        }
    } else {
        std::string usage = "Usage: coetcd " + s->name;
        std::string operands;
        for (const operand& o : s->operands) {
            usage += o.needed ? " " + o.name : " [" + o.name + "]";
            operands += beside(o.name, o.help);
        }
        usage += " [flags]";
        usage += s->command != nullptr ? " [-- COMMAND...]" : "";
        out = s->help + "\n\n" + usage + "\n";
        out += operands.empty() ? "" : "\n" + operands;
        out += s->options.empty() ? "" : "\nFlags:\n" + help_of(s->options);
    }
    out += "\nConnection, as of etcdctl:\n" + help_of(g.options);
    return out + g.closing;
}

/// One line, as it is read.
class reading {
public:
    reading(const grammar& g, const words& line)
        : grammar_(g)
        , cut_(std::find(line.begin(), line.end(), "--"))
        , at_(line.begin())
        , end_(line.end()) {}

    meaning read(const std::function<const char*(const char*)>& variable) {
        const auto help = std::find_if(at_, cut_, asks_for_help);
        const subcommand* s = subcommand_named();
        const option* before = help != at_ ? option_called(help[-1], s) : nullptr;
        if (help != cut_ && (before == nullptr || before->value.empty())) { // no flag's value
            if (cut_ != end_) {
                throw usage_error(*help + ": stands alone, without a -- behind it");
            }
            return {nullptr, help_of(grammar_, s)};
        }
        while (at_ != cut_) {
            const std::string& word = *at_++;
            if (word.size() > 1 && word.front() == '-') {
                take_option(word);
            } else {
                take_word(word);
            }
        }
        if (found_ == nullptr) {
            throw usage_error("there is no subcommand");
        }
        take_the_rest();
        if (found_->operands.size() > operands_ && found_->operands[operands_].needed) {
            throw usage_error(found_->name + ": there is no " + found_->operands[operands_].name);
        }
        for (const option& o : grammar_.options) {
            const char* const value = o.variable.empty() ? nullptr : variable(o.variable.c_str());
            if (value != nullptr && *value != '\0' && !given_.contains(o.name)) {
                take(o.take, value, o.variable);
            }
        }
        if (found_->check) {
            found_->check();
        }
        return {found_, {}};
    }

private:
    /// By the first word that is no flag, and no flag's value.
    const subcommand* subcommand_named() const {
        for (auto at = at_; at != cut_; ++at) {
            if (at->size() < 2 || at->front() != '-') {
                return subcommand_called(*at);
            }
            const option* const o = option_called(*at, nullptr);
            if (o != nullptr && !o->value.empty() && at + 1 != cut_) {
                ++at;
            }
        }
        return nullptr;
    }

    const subcommand* subcommand_called(const std::string& name) const {
        for (const subcommand& s : grammar_.subcommands) {
            if (s.name == name) {
                return &s;
            }
        }
        return nullptr;
    }

    /// One of all subcommands, or of this one.
    const option* option_called(std::string_view name, const subcommand* of) const {
        for (const auto* list : {&grammar_.options, of != nullptr ? &of->options : nullptr}) {
            for (std::size_t i = 0; list != nullptr && i != list->size(); ++i) {
                const option& o = (*list)[i];
                if (o.name == name || (!o.letter.empty() && o.letter == name)) {
                    return &o;
                }
            }
        }
        return nullptr;
    }

    static void take(const taker& into, const std::string& value, const std::string& from) {
        try {
            into(value);
        } catch (const usage_error& e) {
            throw usage_error(from + ": " + e.what());
        }
    }

    void take_option(const std::string& word) {
        const std::size_t equals = word.starts_with("--") ? word.find('=') : word.npos;
        const option* const o = option_called(std::string_view(word).substr(0, equals), found_);
        if (o == nullptr) {
            refuse(without_value(word));
        }
        std::string value = "true";
        if (equals != word.npos) {
            value = word.substr(equals + 1);
        } else if (!o->value.empty()) {
            value = value_behind(*o);
        }
        const auto [earlier, is_first] = given_.emplace(o->name, value);
        if (!is_first && !o->value.empty()) {
            throw usage_error(o->name + ": is given twice");
        }
        take(o->take, value, o->name);
        if (!is_first && is_true(earlier->second) != is_true(value)) {
            throw usage_error(o->name + ": is given as true and as false");
        }
    }

    std::string value_behind(const option& o) {
        if (at_ == cut_) {
            throw usage_error(o.name + ": has no value");
        }
        if (at_->size() > 1 && at_->front() == '-') {
            throw usage_error(o.name + ": has no value; one that begins with a dash is written " +
                              o.name + "=" + o.value); // not as it is: perhaps a password
        }
        return *at_++;
    }

    /// @param flag What is left of a word that is no flag.
    [[noreturn]] void refuse(const std::string& flag) const {
        const option* const meant = option_called(flag, found_);
        if (meant != nullptr && !meant->value.empty()) {
            throw usage_error(quoted(flag) + ": its value stands behind it, or after =: " + flag +
                              "=" + meant->value);
        }
        if (meant != nullptr || asks_for_help(flag)) {
            throw usage_error(quoted(flag) + " is a word of its own: nothing belongs to it");
        }
        throw usage_error("no such flag" + (found_ ? " of " + found_->name : "") +
                          (flag == "--" ? "; all have small letters" : ": " + quoted(flag)) +
                          (found_ ? "" : ", before a subcommand"));
    }

    /// An unknown flag, cut off where a password may begin: other programs know `-pSECRET`.
    static std::string without_value(const std::string& flag) {
        constexpr std::string_view password = "--password";
        if (!flag.starts_with("--")) {
            return flag.substr(0, 2);
        }
        const auto is_part = [](char c) { return c == '-' || (c >= 'a' && c <= 'z'); };
        const auto end = std::find_if_not(flag.begin(), flag.end(), is_part);
        const std::string name(flag.begin(), end);
        return name.starts_with(password) ? std::string(password) : name;
    }

    /// A word that nothing takes may be meant as the value of a flag that has none, or of another
    /// program's flag, and be a password: so it is not shown.
    void take_word(const std::string& word) {
        if (found_ == nullptr) {
            found_ = subcommand_called(word);
            if (found_ == nullptr) {
                throw usage_error("no such subcommand" +
                                  (given_.empty() ? ": " + quoted(word) : ", behind the flags"));
            }
            return;
        }
        if (operands_ == found_->operands.size()) {
            throw usage_error(found_->name + ": one word too many" +
                              (operands_ == 0 ? "" : ", behind " + found_->operands.back().name) +
                              (found_->command != nullptr ? "; a COMMAND stands after --" : ""));
        }
        const operand& o = found_->operands[operands_++];
        take(o.take, word, found_->name + ": " + o.name);
    }

    void take_the_rest() {
        if (cut_ == end_) {
            return;
        }
        if (cut_ + 1 == end_) {
            throw usage_error(found_->name + (found_->command != nullptr
                                                  ? ": there is no COMMAND after --"
                                                  : ": there is nothing after --"));
        }
        if (found_->command == nullptr) {
            std::for_each(cut_ + 1, end_, [this](const std::string& w) { take_word(w); });
        } else {
            found_->command->assign(cut_ + 1, end_);
        }
    }

    const grammar& grammar_;
    const words::const_iterator cut_; ///< The first `--`, or the end.
    words::const_iterator at_;
    const words::const_iterator end_;
    const subcommand* found_ = nullptr;
    std::size_t operands_ = 0;
    std::map<std::string, std::string> given_; ///< The flags, with the first value of each.
};

} // namespace

std::optional<std::int64_t> number_in(std::string_view text) {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, wrong] = std::from_chars(text.data(), end, number);
    return wrong == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

meaning parse(const grammar& g,
              const words& line,
              const std::function<const char*(const char*)>& variable) {
    return reading(g, line).read(variable);
}

taker text(std::string& into) {
    return [&into](const std::string& value) { into = value; };
}

taker text(std::optional<std::string>& into) {
    return [&into](const std::string& value) { into = value; };
}

taker name(std::string& into) {
    return [&into](const std::string& value) {
        if (value.empty()) {
            throw usage_error("is empty");
        }
        into = value;
    };
}

taker lock_name(std::string& into) {
    return [take = name(into)](const std::string& value) {
        constexpr std::size_t longest = 512;
        if (value.size() > longest) {
            throw usage_error("is longer than " + std::to_string(longest) + " bytes");
        }
        take(value);
    };
}

taker list(words& into) {
    return [&into](const std::string& value) {
        words found;
        for (std::size_t from = 0; from <= value.size();) {
            const std::size_t comma = std::min(value.find(',', from), value.size());
            if (comma == from) {
                throw usage_error("one of them is empty: " + quoted(value));
            }
            found.push_back(value.substr(from, comma - from));
            from = comma + 1;
        }
        into = std::move(found);
    };
}

taker count(std::int64_t& into) {
    return [&into](const std::string& value) { into = count_in(value, 1); };
}

taker count(std::optional<std::int64_t>& into, std::int64_t least) {
    return [&into, least](const std::string& value) { into = count_in(value, least); };
}

taker time(double& into) {
    return [&into](const std::string& value) { into = seconds_in(value); };
}

taker time(std::optional<double>& into) {
    return [&into](const std::string& value) { into = seconds_in(value); };
}

taker some_time(double& into) {
    return [&into](const std::string& value) {
        const double seconds = seconds_in(value);
        if (milliseconds(seconds).count() <= 0) {
            throw usage_error("must be longer than 0");
        }
        into = seconds;
    };
}

taker yes(bool& into) {
    return [&into](const std::string& value) { into = is_true(value); };
}

taker one_of(std::string& into, words choices) {
    return [&into, choices = std::move(choices)](const std::string& value) {
        if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
            std::string all;
            for (const std::string& each : choices) {
                all += (all.empty() ? "" : ", ") + each;
            }
            throw usage_error(quoted(value) + " is none of " + all);
        }
        into = value;
    };
}

} // namespace tool
