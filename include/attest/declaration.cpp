// SPDX-License-Identifier: Apache-2.0
#include "attest/declaration.hpp"
