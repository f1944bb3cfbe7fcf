// SPDX-License-Identifier: GPL-2.0-only
// Controllers of a queue pair's rate and of its paths: the virtual kernel's own files, DCQCN, TIMELY, HPCC, DCTCP,
// NSCC and entropy values.
#pragma once
#include <cstdint>

extern "C" {
#include "rxe_rate.h"
#include "gwport_trim.h"
// They are C, where `new` is a name like others and initializers may be few.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#define new new_
#include "rxe_dcqcn.c"
#include "rxe_dctcp.c"
#include "rxe_entropy.c"
#include "rxe_hpcc.c"
#include "rxe_nscc.c"
#include "rxe_timely.c"
#undef new
#pragma GCC diagnostic pop
}

// struct rxe_congestion_settings, with what else a device is told.
struct DeviceSetting {
    rxe_rate_settings rate{};
    bool ecn = false;
    int64_t window_bytes = 0;  // of payload that is not acknowledged; 0: kMostUnacknowledged packets
    bool window_by_rate = false;
    int64_t ack_every = 0;
    uint8_t int_hops = 0;
    bool selective = false;    // what is lost is sent again alone,
    int64_t reordering_ns = 0;  // and what is missed for longer is lost
    rxe_entropy_settings entropy{};
    bool trim = false;  // ports may cut its requests; what else it sends goes first
};

// A queue pair's controller (rxe_congestion.c).
struct Controller {
    explicit Controller(const DeviceSetting& setting) : set(setting.rate) {
        if (set.kind == RXE_RATE_DCQCN) rxe_dcqcn_init(&dcqcn, &set);
        else if (set.kind == RXE_RATE_TIMELY) rxe_timely_init(&timely, &set);
        else if (set.kind == RXE_RATE_HPCC) rxe_hpcc_init(&hpcc, &set);
        else if (set.kind == RXE_RATE_DCTCP) rxe_dctcp_init(&dctcp, uint64_t(setting.window_bytes));
        else if (set.kind == RXE_RATE_NSCC) rxe_nscc_init(&nscc, uint64_t(setting.window_bytes));
    }
    bool is_fixed() const { return set.kind == RXE_RATE_FIXED; }
    uint64_t rate_bps(int64_t now) {
        switch (set.kind) {
            case RXE_RATE_DCQCN:
                rxe_dcqcn_advance(&dcqcn, &set, uint64_t(now));
                return dcqcn.rate_bps;
            case RXE_RATE_TIMELY:
                return timely.rate_bps;
            case RXE_RATE_HPCC:
                return hpcc.rate_bps;
            default:
                return set.line_bps;
        }
    }

    const rxe_rate_settings& set;
    union {
        rxe_dcqcn dcqcn;
        rxe_timely timely;
        rxe_hpcc hpcc;
        rxe_dctcp dctcp;
        rxe_nscc nscc;
    };
};
