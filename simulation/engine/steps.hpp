// SPDX-License-Identifier: GPL-2.0-only
// Steps that programs go through together: they are told once, and each program finds its part of them.
#pragma once
#include "programs.hpp"

// The next step in which a program has a part; false behind the last one.
inline bool Programs::is_at_step(Program& program, int32_t number, const Steps& steps) {
    Span<int32_t> own[2] = {steps.of(0, number), steps.of(1, number)};
    if (!program.step) std::fill_n(program.posted, 2, 0), std::fill_n(program.awaited, 2, 0);
    for (; steps.first + size_t(program.step) < steps.end; ++program.step) {
        size_t step = steps.first + size_t(program.step);
        int32_t kind = step_kind_[step];
        bool waits = kind & kStepWaits;
        Span<int32_t> found[2];
        for (int direction = 0; direction < 2; ++direction) {
            if (waits && !(kind & (direction ? kStepReceives : kStepSends))) continue;
            int32_t& place = (waits ? program.awaited : program.posted)[direction];
            const Span<int32_t>& messages = own[direction];
            if (place && messages[size_t(place) - 1] >= step_first_[step]) place = 0;  // it goes back
            while (size_t(place) < messages.size && messages[size_t(place)] < step_first_[step]) ++place;
            size_t after = size_t(place);
            while (after < messages.size && messages[after] < step_end_[step]) ++after;
            found[direction] = {messages.data + place, after - size_t(place)};
        }
        program.sends = found[0];
        program.receives = found[1];
        program.marks = {};
        program.sends_first = kind & kStepSends;
        program.receives_first = hosts_ && kind & kStepReceivesFirst;
        program.waits = waits;
        if (found[0].size + found[1].size) return true;
    }
    program.step = 0;
    program.waits = false;
    return false;
}

inline void Programs::read_steps(const Columns& from) {
    auto program = from.shorts("steps.program"), members = from.shorts("steps.programs");
    auto first = from.ints("steps.first");
    step_kind_ = from.shorts("step.kind");
    step_first_ = from.ints("step.first");
    step_end_ = from.ints("step.end");
    for (size_t i = 0; i < program.size; ++i) {
        Steps steps{size_t(first[i]), size_t(first[i + 1]), program[i], members[i], {}, {}};
        int64_t begin = INT64_MAX, end = 0;
        for (size_t step = steps.first; step < steps.end; ++step) {
            begin = std::min(begin, step_first_[step]);
            end = std::max(end, step_end_[step]);
        }
        if (end > int64_t(messages_.size())) throw BadScenario("step.end: found message " + std::to_string(end));
        for (int direction = 0; direction < 2; ++direction) {
            auto whose = [&](int64_t message) {
                const Message& found = messages_[size_t(message)];
                int32_t member = (direction ? found.receiver : found.sender) - steps.program;
                if (member < 0 || member >= steps.programs)
                    throw BadScenario("steps.program: found a message of another program");
                return size_t(member);
            };
            std::vector<int32_t>& begins = steps.begins[direction];
            begins.assign(size_t(steps.programs) + 2, 0);
            for (int64_t message = begin; message < end; ++message) ++begins[whose(message) + 2];
            for (size_t k = 2; k < begins.size(); ++k) begins[k] += begins[k - 1];
            steps.own[direction].resize(size_t(begins.back()));
            for (int64_t message = begin; message < end; ++message)
                steps.own[direction][size_t(begins[whose(message) + 1]++)] = int32_t(message);
        }
        steps_.push_back(std::move(steps));
    }
}
