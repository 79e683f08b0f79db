// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/resumable.hpp>
#include <coetcd/detail/recipe/observed.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/until_over.hpp>
#include <coetcd/detail/wire/printable.hpp>

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Reserves a key that can be resumed, so that nothing else of the session resumes it: while it is
/// looked at, and for good if it is accepted. What was taken over once may have been given back
/// since, and not be deleted yet.
class resuming {
public:
    resuming(session_impl& of, std::string key, std::int64_t create_revision)
        : of_(of)
        , place_(of.resumed.emplace(std::move(key), create_revision)) {}
    ~resuming() {
        if (*this && !accepted_) {
            of_.resumed.erase(place_.first);
        }
    }
    resuming(const resuming&) = delete;
    resuming& operator=(const resuming&) = delete;

    /// False if somebody else has it.
    explicit operator bool() const { return place_.second; }
    void accept() { accepted_ = true; }

private:
    session_impl& of_;
    const std::pair<session_impl::lives::iterator, bool> place_;
    bool accepted_ = false;
};

/// @throws error if a request that was to lead to a hold has failed.
inline void check_resumed(const error_code& ec,
                          const std::string& text,
                          const std::string& title,
                          const std::string& whole_name) {
    if (ec) {
        throw error(ec, title + ": " + text + logic::if_denied(ec, wire::printable(whole_name)));
    }
}

/// Finds out whether a life of a key of the session's lease is the oldest of its queue, by a
/// transaction that goes through etcd's consensus.
inline asio::awaitable<bool> is_oldest(std::shared_ptr<session_impl> s,
                                       logic::name_keys where,
                                       std::int64_t create_revision,
                                       time_point deadline,
                                       std::string title,
                                       std::string name) {
    const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_type cancelled_before = stop.cancelled();
    logic::attempt_keys keys;
    keys.lease = s->lease();
    keys.by_name.push_back(std::move(where));
    const auto part = std::make_shared<lane_part>(logic::confirm_resumed(keys, create_revision));
    part->likely = true;
    part->not_after = deadline;
    part->patience = s->request_timeout;
    co_await until_over(s->owner->transactions, part);
    check_resumed(part->ec, part->text, title, s->owner->in_etcd(name));
    const logic::standing now = logic::after_confirm(part->response, keys, create_revision);
    s->require_alive(title);
    if (stop.cancelled() != cancelled_before) {
        throw_aborted();
    }
    co_return now.at == logic::standing::where::owner;
}

inline asio::awaitable<std::shared_ptr<place>> resume_hold(std::shared_ptr<session_impl> s,
                                                           wanted_name wanted) {
    const recipe& how = *wanted.how;
    const std::string& name = wanted.name;
    const std::string title = std::string(how.word) + " \"" + wire::printable(name) + "\", resume";
    s->require_alive(title);
    const call_terms in_time = s->owner->within(s->request_timeout);
    const range_request queue = logic::whole_queue(name);
    const outcome<range_response> read = co_await call(s->owner, queue, in_time);
    check_resumed(read.ec, read.text, title, s->owner->in_etcd(name));
    s->require_alive(title);
    const std::vector<logic::resumable_key> left =
        logic::resumable_of(read.response.kvs, name, s->lease(), s->nonce());

    std::shared_ptr<place> taken;
    for (std::size_t i = 0; i != left.size(); ++i) {
        const logic::resumable_key& k = left[i];
        logic::name_keys left_keys = logic::resumable_keys(name, k.id, s->lease(), s->nonce());
        left_keys.note_key = slot_keys(wanted, s->lease(), s->nonce(), 0, 0).note_key;
        resuming resuming_it(*s, left_keys.keys.front(), k.create_revision);
        if (!resuming_it) {
            continue;
        }
        bool holds = i == 0; // if the others have gone: a read may have shown the past
        if (holds) {
            holds =
                co_await is_oldest(s, left_keys, k.create_revision, in_time.deadline, title, name);
        }
        resuming_it.accept();
        // If it is not taken, it is given up here.
        const std::shared_ptr<place> resumed =
            place::resume(s, how, name, std::move(left_keys), k.create_revision, k.has_epoch);
        if (holds) {
            resumed->grant();
            taken = resumed;
        }
    }
    co_return taken;
}

/// Takes over what an earlier object with the session's lease holds.
/// @returns Nothing if that object holds nothing. The places where it waits are given up: nobody
///   would take them.
inline asio::awaitable<std::shared_ptr<place>> resume(std::shared_ptr<session_impl> s,
                                                      wanted_name wanted) {
    std::string name = wanted.name;
    const recipe& how = *wanted.how;
    auto work = resume_hold(s, std::move(wanted));
    return observed(std::move(s), how, std::move(name), std::move(work));
}

inline asio::awaitable<std::shared_ptr<place>> resume_one_life(std::shared_ptr<session_impl> s,
                                                               const recipe& how,
                                                               std::string name,
                                                               std::string key,
                                                               std::int64_t create_revision) {
    const std::string title = std::string(how.word) + " \"" + wire::printable(name) + "\", resume";
    s->require_alive(title);
    std::shared_ptr<place> taken;
    const std::string id = key.substr(name.size() + 1);
    resuming resuming_it(*s, key, create_revision);
    if (!resuming_it || logic::is_own_slot(id, s->lease(), s->nonce())) {
        co_return taken;
    }
    logic::name_keys left_keys = logic::resumable_keys(name, id, s->lease(), s->nonce());
    const call_terms in_time = s->owner->within(s->request_timeout);
    const bool holds =
        co_await is_oldest(s, left_keys, create_revision, in_time.deadline, title, name);
    if (holds) {
        resuming_it.accept();
        const bool has_epoch = logic::is_slot(id, s->lease());
        taken = place::resume(s, how, name, std::move(left_keys), create_revision, has_epoch);
        taken->grant();
    }
    co_return taken;
}

/// Takes over a certain life of a key, if it is the session's lease that holds it.
/// @returns Nothing if it does not; then nothing is changed.
inline asio::awaitable<std::shared_ptr<place>> resume_life(std::shared_ptr<session_impl> s,
                                                           const recipe& how,
                                                           std::string name,
                                                           std::string key,
                                                           std::int64_t create_revision) {
    auto work = resume_one_life(s, how, name, std::move(key), create_revision);
    return observed(std::move(s), how, std::move(name), std::move(work));
}

} // namespace coetcd::detail
