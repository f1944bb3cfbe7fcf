// SPDX-License-Identifier: GPL-2.0-only
// The packet engine: reads a scenario from standard input, follows it to its end, and writes what happened to
// standard output. README.md says how it works and what the columns are.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "serving.hpp"
#include "simulation.hpp"

namespace {

// Tells how far a scenario is, at most so often.
class Progress {
  public:
    Progress(Simulation& simulation, int64_t interval_ms) : of_(simulation), interval_(interval_ms) {}
    void look() {
        if (!interval_.count() || Clock::now() - told_ < interval_) return;
        told_ = Clock::now();
        int64_t numbers[] = {of_.network.now_ns, int64_t(of_.programs().received()), int64_t(of_.programs().messages())};
        fwrite(kProgressMagic, 1, 8, stdout);
        fwrite(numbers, sizeof numbers, 1, stdout);
        fflush(stdout);
    }

  private:
    using Clock = std::chrono::steady_clock;
    Simulation& of_;
    std::chrono::milliseconds interval_;
    Clock::time_point told_ = Clock::now();
};

void follow(Columns scenario) {
    clock_t began = clock();
    Simulation simulation(std::move(scenario));
    Progress progress(simulation, simulation.scenario.number("progress_ms"));
    simulation.programs().begin();
    if (!simulation.programs().are_over()) simulation.network.run([&] { progress.look(); });
    simulation.write_timeline(stdout, double(clock() - began) / CLOCKS_PER_SEC);
}

}  // namespace

int main() {
    try {
        Columns scenario;
        scenario.read(stdin);
        if (scenario.has("driven")) Serving(std::move(scenario), stdin, stdout).serve();
        else follow(std::move(scenario));
    } catch (const BadScenario& error) {
        fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    if (fflush(stdout)) return 1;
    _exit(0);  // the system frees all memory at once
}
