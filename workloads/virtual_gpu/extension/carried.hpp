// Gloo, with programs for the collectives for which the run has some (workloads/torch_backend/device_programs.py), and
// a ring for reduce-scatters.
#pragma once
#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace groundwire {

// `programs` runs them for this group; None without any. To be called with Python's lock.
c10::intrusive_ptr<c10d::Backend> carried_by(c10::intrusive_ptr<c10d::Backend> gloo, pybind11::object programs);

}  // namespace groundwire
