// SPDX-License-Identifier: BSL-1.0
#include "support/fake_etcd.hpp"

#include <coetcd/detail/wire/base64.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace support {

using coetcd::lease_id;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using coetcd::detail::sending;

namespace {

std::string bytes(const nlohmann::json& from, const char* field) {
    std::string out;
    if (from.contains(field)) {
        coetcd::detail::wire::decode_base64(from[field].get<std::string>(), out);
    }
    return out;
}

std::string text(const std::string& of) {
    std::string out;
    coetcd::detail::wire::append_base64(out, of);
    return out;
}

std::int64_t number(const nlohmann::json& from, const char* field) {
    return from.contains(field) ? std::stoll(from[field].get<std::string>()) : 0;
}

bool in_range(const std::string& key, const std::string& first, const std::string& end) {
    if (end.empty()) {
        return key == first;
    }
    return key >= first && (end == std::string(1, '\0') || key < end);
}

} // namespace

fake_etcd::fake_etcd(std::shared_ptr<scripted_env> world)
    : world_(std::move(world)) {
    world_->on_call = [this](const call_request& request, reply& r) { serve(request, r); };
    world_->on_open = [this](const call_request& request,
                             std::shared_ptr<scripted_env::server_stream> stream) {
        auto* const key = stream.get();
        stream->on_close = [this, key] {
            std::erase_if(watches_, [&](const watch& w) { return w.stream.get() == key; });
        };
        if (request.how == sending::once || duplex == way::direct) {
            listen(stream, request.body);
        } else if (duplex == way::refused) {
            reply no;
            no.status = 411;
            no.body = "<html><title>411 Length Required</title></html>";
            world_->push(stream, std::move(no));
        }
    };
    world_->on_message = [this](std::shared_ptr<scripted_env::server_stream> from,
                                const std::string& lines) {
        if (duplex == way::direct) {
            listen(from, lines);
        }
    };
}

std::vector<std::string> fake_etcd::under(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& [key, r] : keys) {
        if (key.starts_with(prefix)) {
            found.push_back(key);
        }
    }
    return found;
}

void fake_etcd::write(const std::string& key, const std::string& value) {
    put({{"key", text(key)}, {"value", text(value)}}, revision + 1);
    tell(std::exchange(pending_, {}));
}

void fake_etcd::erase(const std::string& key) {
    erase_range({{"key", text(key)}}, revision + 1);
    tell(std::exchange(pending_, {}));
}

void fake_etcd::revoke(lease_id id) {
    end_lease(id);
}

fake_etcd::json fake_etcd::header() const {
    return {{"cluster_id", "14841639068965178418"},
            {"member_id", "10276657743932975437"},
            {"revision", std::to_string(revision)},
            {"raft_term", "2"}};
}

void fake_etcd::serve(const call_request& request, reply& r) {
    expire();
    const json in = json::parse(request.body);
    json out;
    try {
        switch (request.what) {
        case rpc::range:
            out = range(in);
            break;
        case rpc::txn: {
            bool changed = false;
            out = txn(in, revision + 1, changed);
            if (changed) {
                tell(std::exchange(pending_, {}));
                out["header"] = header();
            }
            break;
        }
        case rpc::put:
            if (no_space) {
                throw refusal{8, "etcdserver: mvcc: database space exceeded"};
            }
            put(in, revision + 1);
            tell(std::exchange(pending_, {}));
            break;
        case rpc::delete_range:
            out["deleted"] = std::to_string(erase_range(in, revision + 1));
            tell(std::exchange(pending_, {}));
            break;
        case rpc::lease_grant: {
            const lease_id id = number(in, "ID");
            if (leases_.contains(id)) {
                throw refusal{9, "etcdserver: lease already exists"};
            }
            const std::chrono::seconds ttl(std::max<std::int64_t>(2, number(in, "TTL")));
            leases_[id] = {ttl, world_->now() + ttl};
            out = {{"ID", std::to_string(id)}, {"TTL", std::to_string(ttl.count())}};
            break;
        }
        case rpc::lease_revoke:
            if (!leases_.contains(number(in, "ID"))) {
                throw refusal{5, "etcdserver: requested lease not found"};
            }
            end_lease(number(in, "ID"));
            break;
        case rpc::lease_keep_alive: {
            const auto found = leases_.find(number(in, "ID"));
            json result = {{"header", header()}, {"ID", in["ID"]}};
            if (!renews) {
                throw refusal{14, "etcdserver: no leader"};
            }
            if (found != leases_.end()) {
                found->second.ends = world_->now() + found->second.ttl;
                result["TTL"] = std::to_string(found->second.ttl.count());
            }
            r.body = json{{"result", result}}.dump() + "\n";
            return;
        }
        default:
            throw refusal{12, "not served here"};
        }
        out["header"] = header();
        r.body = out.dump();
    } catch (const refusal& no) {
        r.status = 400;
        r.body = json{{"error", no.message}, {"message", no.message}, {"code", no.code}}.dump();
    }
}

fake_etcd::json fake_etcd::range(const json& request) const {
    const std::string first = bytes(request, "key");
    const std::string end = bytes(request, "range_end");
    const std::int64_t newest = number(request, "max_create_revision");
    std::vector<std::pair<std::string, record>> found;
    for (const auto& [key, r] : keys) {
        if (in_range(key, first, end) && (newest == 0 || r.create_revision <= newest)) {
            found.emplace_back(key, r);
        }
    }
    if (request.value("sort_target", "") == "CREATE") {
        const bool descend = request.value("sort_order", "") == "DESCEND";
        std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
            return descend ? a.second.create_revision > b.second.create_revision
                           : a.second.create_revision < b.second.create_revision;
        });
    }
    json out = json::object();
    if (!found.empty()) {
        out["count"] = std::to_string(found.size());
    }
    const auto limit = static_cast<std::size_t>(number(request, "limit"));
    if (limit != 0 && found.size() > limit) {
        found.resize(limit);
        out["more"] = true;
    }
    for (const auto& [key, r] : found) {
        json kv = {{"key", text(key)},
                   {"create_revision", std::to_string(r.create_revision)},
                   {"mod_revision", std::to_string(r.mod_revision)},
                   {"version", std::to_string(r.version)}};
        if (!request.value("keys_only", false)) {
            kv["value"] = text(r.value);
        }
        if (r.lease != 0) {
            kv["lease"] = std::to_string(r.lease);
        }
        out["kvs"].push_back(kv);
    }
    return out;
}

bool fake_etcd::holds(const json& condition) const {
    const std::string first = bytes(condition, "key");
    const std::string end = bytes(condition, "range_end");
    const std::string target = condition.value("target", "VERSION");
    const std::string how = condition.value("result", "EQUAL");
    const auto meets = [&](const record& r, bool exists) {
        if (target == "VALUE") {
            return exists && (r.value == bytes(condition, "value")) == (how == "EQUAL");
        }
        const std::int64_t have = target == "CREATE"  ? r.create_revision
                                  : target == "MOD"   ? r.mod_revision
                                  : target == "LEASE" ? r.lease
                                                      : r.version;
        const std::int64_t want = number(condition,
                                         target == "CREATE"  ? "create_revision"
                                         : target == "MOD"   ? "mod_revision"
                                         : target == "LEASE" ? "lease"
                                                             : "version");
        return how == "EQUAL"     ? have == want
               : how == "GREATER" ? have > want
               : how == "LESS"    ? have < want
                                  : have != want;
    };
    bool any = false;
    for (const auto& [key, r] : keys) {
        if (in_range(key, first, end)) {
            any = true;
            if (!meets(r, true)) {
                return false;
            }
        }
    }
    return any || meets(record(), false);
}

void fake_etcd::check_branch(const json& ops) const {
    for (const json& op : ops) {
        if (!op.contains("request_put")) {
            continue;
        }
        const json& put = op["request_put"];
        if (no_space) {
            throw refusal{8, "etcdserver: mvcc: database space exceeded"};
        }
        if (forbidden.contains(bytes(put, "key"))) {
            throw refusal{7, "etcdserver: permission denied"};
        }
        if (number(put, "lease") != 0 && !leases_.contains(number(put, "lease"))) {
            throw refusal{5, "etcdserver: requested lease not found"};
        }
    }
}

fake_etcd::json fake_etcd::txn(const json& request, std::int64_t at, bool& changed) {
    bool succeeded = true;
    for (const json& c : request.value("compare", json::array())) {
        succeeded = succeeded && holds(c);
    }
    const json ops = request.value(succeeded ? "success" : "failure", json::array());
    check_branch(ops);
    json out = json::object();
    if (succeeded) {
        out["succeeded"] = true;
    }
    for (const json& op : ops) {
        json answer = json::object();
        if (op.contains("request_range")) {
            answer["response_range"] = range(op["request_range"]);
        } else if (op.contains("request_put")) {
            put(op["request_put"], at);
            answer["response_put"] = json::object();
            changed = true;
        } else if (op.contains("request_delete_range")) {
            const std::int64_t deleted = erase_range(op["request_delete_range"], at);
            answer["response_delete_range"] = json::object();
            if (deleted != 0) {
                answer["response_delete_range"]["deleted"] = std::to_string(deleted);
                changed = true;
            }
        }
        out["responses"].push_back(answer);
    }
    return out;
}

void fake_etcd::put(const json& request, std::int64_t at) {
    record& r = keys[bytes(request, "key")];
    r.create_revision = r.version == 0 ? at : r.create_revision;
    r.mod_revision = at;
    ++r.version;
    if (!request.value("ignore_value", false)) {
        r.value = bytes(request, "value");
    }
    if (!request.value("ignore_lease", false)) {
        r.lease = number(request, "lease");
    }
    revision = at;
    pending_.push_back({false, bytes(request, "key"), at, r});
}

std::int64_t fake_etcd::erase_range(const json& request, std::int64_t at) {
    std::int64_t deleted = 0;
    for (auto k = keys.begin(); k != keys.end();) {
        if (in_range(k->first, bytes(request, "key"), bytes(request, "range_end"))) {
            pending_.push_back({true, k->first, at, {}});
            revision = at;
            k = keys.erase(k);
            ++deleted;
        } else {
            ++k;
        }
    }
    return deleted;
}

void fake_etcd::expire() {
    for (auto l = leases_.begin(); l != leases_.end();) {
        const lease_id id = l->first;
        const bool over = l->second.ends <= world_->now();
        ++l;
        if (over) {
            end_lease(id);
        }
    }
}

void fake_etcd::end_lease(lease_id id) {
    leases_.erase(id);
    const std::int64_t at = revision + 1;
    for (auto k = keys.begin(); k != keys.end();) {
        if (k->second.lease == id) {
            pending_.push_back({true, k->first, at, {}});
            revision = at;
            k = keys.erase(k);
        } else {
            ++k;
        }
    }
    tell(std::exchange(pending_, {}));
}

void fake_etcd::tell(const std::vector<change>& changes) {
    history_.insert(history_.end(), changes.begin(), changes.end());
    if (!tells || changes.empty()) {
        return;
    }
    for (const watch& w : watches_) {
        tell(w, changes);
    }
}

void fake_etcd::tell(const watch& w, const std::vector<change>& changes) {
    json events = json::array();
    for (const change& c : changes) {
        if (!in_range(c.key, w.key, w.range_end) || (c.deleted ? w.no_delete : w.no_put)) {
            continue;
        }
        json kv = {{"key", text(c.key)}, {"mod_revision", std::to_string(c.revision)}};
        json event = json::object();
        if (c.deleted) {
            event["type"] = "DELETE";
        } else {
            kv["create_revision"] = std::to_string(c.now.create_revision);
            kv["version"] = std::to_string(c.now.version);
            kv["value"] = text(c.now.value);
        }
        event["kv"] = kv;
        events.push_back(event);
    }
    while (w.wants_pieces && piece != 0 && events.size() > piece) {
        const auto cut = events.begin() + static_cast<std::ptrdiff_t>(piece);
        push(w, {{"events", json::array_t(events.begin(), cut)}, {"fragment", true}});
        events.erase(events.begin(), cut);
    }
    if (!events.empty()) {
        push(w, {{"events", events}});
    }
}

void fake_etcd::push(const watch& w, json message) {
    message["header"] = header();
    message["watch_id"] = std::to_string(w.id);
    world_->push(w.stream, json{{"result", message}}.dump());
}

void fake_etcd::tell_progress() {
    for (const watch& w : watches_) {
        if (w.wants_progress) {
            push(w, json::object());
        }
    }
}

std::size_t fake_etcd::streams() const {
    std::set<const void*> all;
    for (const watch& w : watches_) {
        all.insert(w.stream.get());
    }
    return all.size();
}

void fake_etcd::listen(const std::shared_ptr<scripted_env::server_stream>& from,
                       const std::string& lines) {
    expire();
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
        const json message = json::parse(line);
        const auto answer = [&](std::int64_t id, json more) {
            more["header"] = header();
            more["watch_id"] = std::to_string(id);
            world_->push(from, json{{"result", more}}.dump());
        };
        if (message.contains("cancel_request")) {
            const std::int64_t id = number(message["cancel_request"], "watch_id");
            const auto gone = std::erase_if(
                watches_, [&](const watch& w) { return w.stream == from && w.id == id; });
            if (gone != 0) {
                answer(id, {{"canceled", true}});
            }
            continue;
        }
        const json& create = message["create_request"];
        const std::int64_t id = number(create, "watch_id");
        const std::int64_t start = number(create, "start_revision");
        answer(id, {{"created", true}});
        if (start != 0 && start < compacted) {
            answer(id, {{"canceled", true}, {"compact_revision", std::to_string(compacted)}});
            continue;
        }
        const json filters = create.value("filters", json::array());
        const auto has = [&](const char* f) {
            return std::find(filters.begin(), filters.end(), f) != filters.end();
        };
        watches_.push_back({from,
                            id,
                            bytes(create, "key"),
                            bytes(create, "range_end"),
                            has("NOPUT"),
                            has("NODELETE"),
                            create.value("progress_notify", false),
                            create.value("fragment", false)});
        if (start == 0) {
            continue;
        }
        std::vector<change> some;
        std::set<std::int64_t> revisions;
        for (const change& c : history_) {
            if (c.revision < start) {
                continue;
            }
            if (!revisions.contains(c.revision) && revisions.size() == batch) {
                tell(watches_.back(), std::exchange(some, {}));
                revisions.clear();
            }
            revisions.insert(c.revision);
            some.push_back(c);
        }
        tell(watches_.back(), some);
    }
}

} // namespace support
