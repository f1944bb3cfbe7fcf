#pragma once
#include <torch/csrc/utils/pybind.h>

namespace groundwire {
void install_process_group(pybind11::module_& module);
}
