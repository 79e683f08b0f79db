// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/observers.hpp>

namespace coetcd {

COETCD_DECL observers::observers(std::vector<std::shared_ptr<observer>> all)
    : all_(std::move(all)) {
    std::erase(all_, nullptr);
}

COETCD_DECL void observers::on_request_begin(const request_begin_report& r, request_headers& more) {
    for (const auto& each : all_) {
        each->on_request_begin(r, more);
    }
}

COETCD_DECL void observers::on_request(const request_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_request(r);
    }
}

COETCD_DECL void observers::on_connection(const connection_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_connection(r);
    }
}

COETCD_DECL void observers::on_renewal(const renewal_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_renewal(r);
    }
}

COETCD_DECL void observers::on_session_open(const session_open_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_session_open(r);
    }
}

COETCD_DECL void observers::on_session_end(const session_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_session_end(r);
    }
}

COETCD_DECL void observers::on_lock_wait_begin(const lock_wait_begin_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_lock_wait_begin(r);
    }
}

COETCD_DECL void observers::on_lock_wait(const lock_wait_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_lock_wait(r);
    }
}

COETCD_DECL void observers::on_lock_hold(const lock_hold_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_lock_hold(r);
    }
}

COETCD_DECL void observers::on_overrun(const overrun_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_overrun(r);
    }
}

COETCD_DECL void observers::on_watch_stream(const watch_stream_report& r) {
    for (const std::shared_ptr<observer>& each : all_) {
        each->on_watch_stream(r);
    }
}

} // namespace coetcd
