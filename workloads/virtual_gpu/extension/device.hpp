#pragma once
#include <ATen/core/Generator.h>

#include "timeline.hpp"

namespace groundwire {

MomentPtr moment_of(void* event);  // nullptr: never recorded
at::Generator& default_generator(int device);
at::Generator drawing(const at::Generator& generator);  // a CPU generator for its next operator
void use_device();
bool is_forked();                  // a child of a process that used the device
void install_device();

}  // namespace groundwire
