// What g++ 12 miscompiles. 'expect' names what cmake/check-gcc12 must say of that line; it says
// nothing of the others. This file is read, not compiled.
struct params {
    std::string key;
    int count = 0;
};

awaitable<void> captures(mutex& m, std::string s) {
    co_await with_lock(m, [s]() -> awaitable<void> { co_return; });             // expect: capture
    co_await with_lock(m, [s = std::move(s), &m] { return ship(m, s); });       // expect: capture
    co_await with_lock(m, [=]() mutable -> awaitable<void> { co_await go(); }); // expect: capture
    co_await [s]() -> awaitable<void> { co_return; }();                         // expect: capture
    co_await with_lock(m, [&]() -> awaitable<void> { co_return; });
    co_await with_lock(m, [&s, this] { return ship(s); });
    auto body = [s]() -> awaitable<void> { co_await ship(s); };
    co_await with_lock(m, std::move(body));
    // gcc12: safe, an int
    co_await with_lock(m, [n = 3] { return ship(n); });
    const auto spawned = [s, x = array[3]] { return ship(s); };
    [[maybe_unused]] const auto first = table[co_await index()];
}

awaitable<void> aggregates(std::string k) {
    co_await f({.key = k});                         // expect: aggregate
    co_await f(params{k, 3});                       // expect: aggregate
    co_await g(1, params{.key = k, .count = 3}, k); // expect: aggregate
    co_await f(params{});
    co_await client.range(k, {.limit = 10}); // of coetcd's own options
    co_await f(std::chrono::milliseconds{3});
    co_await f(std::optional<std::string>{k});
    const params named{k, 3};
    co_await f(named);
    auto op = f({.key = k});
    co_await std::move(op);
}

awaitable<int> awaits_in_braces() {
    auto r = result{co_await a(), 1}; // expect: await in braces, aggregate
    take(pair{1, co_await a()});      // expect: await in braces
    const int n{co_await a()};
    { co_await a(); }
    co_return n;
}

awaitable<void> lists() {
    co_await f({"a", "b"}); // expect: list
    co_await f(1, {"a"});   // expect: list
    co_await f({});
    const std::vector<std::string> all{"a", "b"};
    co_await f(all);
    for (const int i : {1, 2, 3}) {
        co_await f(i);
    }
}

awaitable<std::string> conditionals(bool c) {
    const auto x = c ? co_await a() : co_await b(); // expect: conditional
    const auto y = co_await f(c ? 1 : 2);
    const auto z = c ? a() : b();
    const auto v = co_await f(c ? short_nap() : 2);                      // expect: branches
    const auto w = co_await f(1, taste(2, is(c) ? 1 : 2), c ? 3 : g(4)); // expect: branches
    co_return c ? x : y;
}

awaitable<void> no_variable(mutex& m) {
    if (co_await m.try_lock()) { // expect: condition
        const int n = 3;
        co_await m.unlock();
    }
    while (co_await m.try_lock()) { // expect: condition
    }
}

awaitable<void> a_variable(mutex& m) {
    const bool got = co_await m.try_lock();
    if (co_await m.try_lock()) {
    }
}

void spawns(io_context& context, mutex& m, std::string s) {
    co_spawn(
        context,
        [&m, s]() -> awaitable<void> {
            const auto text = s;
            co_await with_lock(m, [text] { return ship(text); }); // expect: capture
        },
        detached);
    const char* words = "co_await f({.key = k})";
    const char* raw = R"x(co_await f({"a"}))x";
    /* co_await f({.key = k}) */
}
