// SPDX-License-Identifier: BSL-1.0
#include "support/etcd_cluster.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <signal.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "support/blocking_http.hpp"
#include "support/environment.hpp"
#include "support/etcd_server.hpp"
#include "support/network.hpp"
#include "support/process.hpp"
#include "support/server_log.hpp"

namespace support {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr std::uint16_t client_port = 2379;
constexpr std::uint16_t peer_port = 2380;

// `what` is read when it is too late, so that the condition may say there how far it has come.
void wait_until(const std::function<bool()>& condition, const std::string& what) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= deadline) {
            throw std::runtime_error("etcd_cluster: not in time: " + what);
        }
        std::this_thread::sleep_for(20ms);
    }
}

std::string url_of(const std::string& address, std::uint16_t port) {
    return "http://" + address + ':' + std::to_string(port);
}

// The body of an answer, or nothing at all.
nlohmann::json json_of(const std::string& answer) {
    const auto body = answer.find("\r\n\r\n");
    auto json = nlohmann::json::parse(
        body == answer.npos ? std::string() : answer.substr(body), nullptr, false);
    return json.is_object() ? json : nlohmann::json::object();
}

std::string text_of(const nlohmann::json& object, const char* field) {
    return object.contains(field) ? object.at(field).get<std::string>() : std::string();
}

// The index of the last entry in it. The files are named <term>-<index>.snap.
std::uint64_t newest_snapshot(const std::filesystem::path& data) {
    std::uint64_t newest = 0;
    for (const auto& file : std::filesystem::directory_iterator(data / "member" / "snap")) {
        const auto name = file.path().filename().string();
        const auto dash = name.find('-');
        if (file.path().extension() == ".snap" && dash != name.npos) {
            newest = std::max<std::uint64_t>(newest, std::stoull(name.substr(dash + 1), {}, 16));
        }
    }
    return newest;
}

// Whether the installed one is of this minor version.
bool is_installed(const std::string& minor) {
    process_options options;
    options.capture = true;
    try {
        background_process etcd({"etcd", "--version"}, std::move(options));
        return etcd.read_all().starts_with("etcd Version: " + minor + '.');
    } catch (const std::runtime_error&) {
        return false; // there is none
    }
}

} // namespace

struct etcd_cluster::member {
    std::string address;
    std::string id;      // as etcd writes it
    std::string program; // empty: what COETCD_ETCD names
    etcd_place place;
    network_namespace network;
    std::optional<background_process> process;
    std::optional<server_log> log;
    bool paused = false;

    bool runs() { return process && process->running(); }
    std::string log_file() const { return place.data.string() + ".log"; }
};

// Members are at .1 and so on; the tests, and the questions of this class, in the upper half.
namespace {

std::string address_in(const std::string& cluster, std::size_t host) {
    return "10.77." + cluster + '.' + std::to_string(host);
}

constexpr std::size_t host_of_tests = 254;
constexpr std::size_t host_of_questions = 253;

} // namespace

etcd_cluster::etcd_cluster(std::size_t members,
                           const std::string& program,
                           std::vector<std::string> extra_arguments)
    : extra_arguments_(std::move(extra_arguments)) {
    static int count = 0;
    number_ = std::to_string(++count);
    auto pattern = (std::filesystem::temp_directory_path() / "coetcd-cluster-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        throw std::runtime_error("cannot create " + pattern);
    }
    directory_ = pattern;
    try {
        const auto bridge = "br" + number_;
        // Else it takes the lowest address of its links, and what had asked for it before a member
        // was added goes on to send elsewhere.
        run_script("ip link add " + bridge + " address 02:00:00:00:00:01 type bridge\n" + //
                   "ip address add " + address_in(number_, host_of_tests) + "/24 dev " + bridge +
                   "\nip address add " + address_in(number_, host_of_questions) + "/24 dev " +
                   bridge + "\nip link set " + bridge + " up");
        std::string cluster;
        for (std::size_t i = 0; i < members; ++i) {
            auto& m = create_member();
            m.program = program;
            cluster += (i == 0 ? "" : ",") + m.place.name + '=' + m.place.peer_url;
        }
        for (auto& m : members_) {
            m->place.cluster = cluster;
            launch(*m);
        }
        for (auto& m : members_) {
            await_serving(*m);
            m->id =
                text_of(json_of(ask(*m, "/v3/maintenance/status", "{}"))["header"], "member_id");
        }
        wait_healthy();
    } catch (...) {
        members_.clear();
        std::filesystem::remove_all(directory_);
        throw;
    }
}

etcd_cluster::~etcd_cluster() {
    members_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
    try {
        run_script("ip link delete br" + number_);
    } catch (const std::exception&) {
        // It goes with this process.
    }
}

etcd_cluster::member& etcd_cluster::create_member() {
    auto m = std::make_unique<member>();
    const auto host = members_.size() + 1;
    const auto link = "link" + number_ + '-' + std::to_string(host);
    m->address = address_in(number_, host);
    m->place.name = "member-" + std::to_string(host);
    m->place.data = directory_ / m->place.name;
    m->place.client_url = url_of(m->address, client_port);
    m->place.peer_url = url_of(m->address, peer_port);
    // The rules concern eth0 alone: an etcd's gateway talks to it by its own address.
    run_script("ip link add eth0 type veth peer name " + link + " netns " +
                   std::to_string(::getpid()) + "\nip address add " + m->address +
                   "/24 dev eth0\nip link set eth0 up\n"
                   "nft add table inet faults\n"
                   "nft add counter inet faults dropped\n"
                   "nft 'add chain inet faults input { type filter hook input priority 0; }'\n"
                   "nft 'add chain inet faults output { type filter hook output priority 0; }'",
               m->network.descriptor());
    run_script("ip link set " + link + " master br" + number_ + " up");
    return *members_.emplace_back(std::move(m));
}

void etcd_cluster::launch(member& m) {
    auto argv = etcd_argv(m.place);
    if (!m.program.empty()) {
        argv.front() = m.program;
    }
    // Else members may be added only to a cluster that has been healthy for five seconds.
    argv.emplace_back("--strict-reconfig-check=false");
    // Else, before 3.5, a member that comes back deposes the leader.
    argv.emplace_back("--pre-vote=true");
    argv.insert(argv.end(), extra_arguments_.begin(), extra_arguments_.end());
    process_options options;
    options.output_file = m.log_file();
    options.network = m.network.descriptor();
    m.process.emplace(argv, std::move(options));
    m.paused = false;
    if (!m.log) {
        m.log.emplace(m.place.name + " at " + m.place.client_url, m.log_file());
    }
}

std::string
etcd_cluster::ask(const member& m, const std::string& path, const std::string& body) const {
    blocking_request request;
    request.server = ipv4(m.address, client_port);
    request.path = path;
    request.body = body;
    request.source = address_in(number_, host_of_questions);
    return blocking_http(request);
}

bool etcd_cluster::serves(const member& m) const {
    return text_of(json_of(ask(m, "/health")), "health") == "true";
}

void etcd_cluster::await_serving(member& m) const {
    const auto serves_or_ended = [&] { return serves(m) || !m.runs(); };
    wait_until(serves_or_ended, m.place.name + " serves");
    if (!m.runs()) {
        throw std::runtime_error("etcd_cluster: " + m.place.name + " has ended");
    }
}

std::size_t etcd_cluster::size() const {
    return members_.size();
}

std::string etcd_cluster::url(std::size_t i) const {
    return at(i).place.client_url;
}

std::vector<std::string> etcd_cluster::urls() const {
    std::vector<std::string> all;
    for (const auto& m : members_) {
        all.push_back(m->place.client_url);
    }
    return all;
}

std::string etcd_cluster::address(std::size_t i) const {
    return at(i).address;
}

std::string etcd_cluster::address_of_questions() const {
    return address_in(number_, host_of_questions);
}

std::string
etcd_cluster::post(std::size_t i, const std::string& path, const std::string& json) const {
    const auto answer = ask(at(i), path, json);
    const auto body = answer.find("\r\n\r\n");
    return body == answer.npos ? std::string() : answer.substr(body + 4);
}

void etcd_cluster::kill(std::size_t i) {
    at(i).process->signal(SIGKILL);
    at(i).process->wait();
}

void etcd_cluster::stop(std::size_t i) {
    resume(i);
    at(i).process->signal(SIGTERM);
    if (!at(i).process->wait_for(patience)) {
        throw std::runtime_error("etcd_cluster: " + at(i).place.name + " does not end");
    }
}

void etcd_cluster::start(std::size_t i) {
    if (at(i).runs()) {
        throw std::logic_error("etcd_cluster: " + at(i).place.name + " runs already");
    }
    launch(at(i));
    await_serving(at(i));
}

void etcd_cluster::replace_program(std::size_t i, const std::string& program) {
    at(i).program = program;
}

void etcd_cluster::pause(std::size_t i) {
    at(i).process->signal(SIGSTOP);
    siginfo_t info{}; // the signal takes effect a moment later
    ::waitid(P_PID, static_cast<id_t>(at(i).process->pid()), &info, WSTOPPED | WNOWAIT | WEXITED);
    at(i).paused = true;
}

void etcd_cluster::resume(std::size_t i) {
    at(i).process->signal(SIGCONT);
    at(i).paused = false;
}

pid_t etcd_cluster::pid(std::size_t i) const {
    return at(i).process->pid();
}

void etcd_cluster::restore(const std::filesystem::path& snapshot) {
    for (std::size_t i = 0; i < size(); ++i) {
        kill(i);
    }
    for (const auto& m : members_) {
        std::filesystem::remove_all(m->place.data);
        process_options options;
        options.environment = {"ETCDCTL_API=3"};
        options.output_file = m->log_file();
        const auto result = run_process({etcdctl_program(),
                                         "snapshot",
                                         "restore",
                                         snapshot.string(),
                                         "--name=" + m->place.name,
                                         "--initial-cluster=" + m->place.cluster,
                                         "--initial-advertise-peer-urls=" + m->place.peer_url,
                                         "--data-dir=" + m->place.data.string()},
                                        std::move(options));
        if (result.exit_code != 0) {
            throw std::runtime_error("etcd_cluster: etcdctl snapshot restore failed");
        }
        launch(*m);
    }
    for (auto& m : members_) {
        await_serving(*m);
    }
}

void etcd_cluster::lose(std::size_t i, const std::string& chain, const std::string& which) {
    const std::string interface = chain == "input" ? "iifname" : "oifname";
    run_script("nft add rule inet faults " + chain + ' ' + interface + " eth0 ip " + which +
                   " counter name dropped drop",
               at(i).network.descriptor());
}

void etcd_cluster::isolate(std::size_t i) {
    lose(i, "input", "saddr " + address_in(number_, 0) + "/25");
    isolate_answers(i);
}

void etcd_cluster::isolate_answers(std::size_t i) {
    lose(i, "output", "daddr " + address_in(number_, 0) + "/25");
}

void etcd_cluster::cut_client(std::size_t i) {
    lose(i, "input", "saddr " + address_in(number_, host_of_tests));
    cut_client_answers(i);
}

void etcd_cluster::cut_client_answers(std::size_t i) {
    lose(i, "output", "daddr " + address_in(number_, host_of_tests));
}

void etcd_cluster::heal() {
    for (const auto& m : members_) {
        run_script("nft flush chain inet faults input; nft flush chain inet faults output",
                   m->network.descriptor());
    }
}

std::uint64_t etcd_cluster::dropped(std::size_t i) const {
    const auto text =
        run_script("nft list counter inet faults dropped", at(i).network.descriptor());
    const std::string packets = "packets ";
    return std::stoull(text.substr(text.find(packets) + packets.size()));
}

bool etcd_cluster::healthy(std::size_t i) const {
    return serves(at(i));
}

std::size_t etcd_cluster::connections(std::size_t i) const {
    // Address and port as /proc writes them: the former as a number in memory.
    const auto in_proc = [](const sockaddr_in& address) {
        char text[16];
        std::snprintf(text, sizeof text, "%08X", address.sin_addr.s_addr);
        return std::string(text);
    };
    char port[8];
    std::snprintf(port, sizeof port, ":%04X", client_port);
    const auto local = in_proc(ipv4(address_in(number_, host_of_tests), 0));
    const auto remote = in_proc(ipv4(at(i).address, 0)) + port;
    const std::string established = "01";

    std::ifstream table("/proc/self/net/tcp");
    std::size_t found = 0;
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string slot, from, to, state;
        words >> slot >> from >> to >> state;
        if (from.starts_with(local) && to == remote && state == established) {
            ++found;
        }
    }
    return found;
}

// `size()` if there is none.
std::size_t etcd_cluster::present_leader() const {
    std::uint64_t highest = 0;
    std::string leads;
    for (const auto& m : members_) {
        if (!m->runs() || m->paused) {
            continue;
        }
        const auto status = json_of(ask(*m, "/v3/maintenance/status", "{}"));
        const auto term = text_of(status, "raftTerm");
        if (!term.empty() && std::stoull(term) >= highest) {
            highest = std::stoull(term);
            leads = text_of(status, "leader");
        }
    }
    const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& m) {
        return !leads.empty() && m->id == leads;
    });
    return static_cast<std::size_t>(found - members_.begin());
}

std::size_t etcd_cluster::leader() const {
    return leader_after(size());
}

std::size_t etcd_cluster::leader_after(std::size_t old) const {
    std::size_t found = size();
    const auto another = [&] {
        found = present_leader();
        return found != size() && found != old;
    };
    wait_until(another, "another one leads");
    return found;
}

bool etcd_cluster::agree(std::string& seen) const {
    seen = "all members agree:";
    std::set<std::string> leaders;
    bool serve = true;
    for (const auto& m : members_) {
        if (m->runs()) {
            const auto leads = text_of(json_of(ask(*m, "/v3/maintenance/status", "{}")), "leader");
            const bool serves_now = serves(*m);
            seen += ' ' + m->place.name + (serves_now ? " follows " : " does not serve, follows ");
            seen += leads.empty() ? "nobody" : leads;
            leaders.insert(leads);
            serve = serve && serves_now && !leads.empty();
        }
    }
    return serve && leaders.size() == 1;
}

void etcd_cluster::wait_healthy() const {
    std::string seen;
    wait_until([&] { return agree(seen); }, seen);
}

std::string etcd_cluster::version(std::size_t i) const {
    return text_of(json_of(ask(at(i), "/version")), "etcdserver");
}

void etcd_cluster::wait_version(const std::string& minor) const {
    for (const auto& m : members_) {
        const auto agreed = [&] {
            const auto cluster = text_of(json_of(ask(*m, "/version")), "etcdcluster");
            return cluster.starts_with(minor + '.');
        };
        wait_until(agreed, m->place.name + " is in a cluster of " + minor);
    }
}

void etcd_cluster::downgrade(const std::string& minor) const {
    std::string answer;
    const auto enabled = [&] {
        const nlohmann::json wanted{{"action", "ENABLE"}, {"version", minor + ".0"}};
        const auto said = json_of(ask(at(leader()), "/v3/maintenance/downgrade", wanted.dump()));
        answer = said.dump();
        return said.contains("version");
    };
    wait_until(enabled, answer); // the one before may be under way
    wait_version(minor);
}

void etcd_cluster::wait_snapshots() const {
    for (const auto& m : members_) {
        const auto index = text_of(json_of(ask(*m, "/v3/maintenance/status", "{}")), "raftIndex");
        const auto stored = [&] {
            return !index.empty() && newest_snapshot(m->place.data) >= std::stoull(index);
        };
        wait_until(stored, m->place.name + " stores a snapshot");
    }
}

std::size_t etcd_cluster::add_learner() {
    auto& asked = at(leader());
    auto& m = create_member();
    const auto answer =
        json_of(ask(asked,
                    "/v3/cluster/member/add",
                    nlohmann::json{{"peerURLs", {m.place.peer_url}}, {"isLearner", true}}.dump()));
    if (!answer.contains("member")) {
        throw std::runtime_error("etcd_cluster: no learner was added: " + answer.dump());
    }
    m.id = text_of(answer["member"], "ID");
    m.place.joins = true;
    m.place.cluster = asked.place.cluster + ',' + m.place.name + '=' + m.place.peer_url;
    launch(m);
    await_serving(m);
    return members_.size() - 1;
}

void etcd_cluster::remove(std::size_t i) {
    const auto answer = json_of(
        ask(at(leader()), "/v3/cluster/member/remove", nlohmann::json{{"ID", at(i).id}}.dump()));
    if (!answer.contains("members")) {
        throw std::runtime_error("etcd_cluster: no member was removed: " + answer.dump());
    }
    if (!at(i).process->wait_for(patience)) {
        throw std::runtime_error("etcd_cluster: a removed member does not end");
    }
}

std::string etcd_of(const std::string& minor) {
    const auto home = environment("HOME") + "/.cache";
    const std::filesystem::path cache = environment("XDG_CACHE_HOME", home.c_str());
    std::string found = is_installed(minor) ? "etcd" : "";
    int newest = -1;
    std::error_code none;
    for (const auto& each : std::filesystem::directory_iterator(cache / "coetcd" / "etcd", none)) {
        const auto version = each.path().filename().string();
        const bool fits = version.starts_with(minor + '.');
        const int patch = fits ? std::atoi(version.c_str() + minor.size() + 1) : -1;
        if (patch > newest && std::filesystem::exists(each.path() / "etcd")) {
            newest = patch;
            found = each.path() / "etcd";
        }
    }
    return found;
}

} // namespace support
