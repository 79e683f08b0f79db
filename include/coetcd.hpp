// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lease.hpp>
#include <coetcd/lock_name.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/session.hpp>
#include <coetcd/watch.hpp>
