#pragma once

namespace groundwire {

void install_profiler();  // torch.profiler's device times, which torch takes by events

}  // namespace groundwire
