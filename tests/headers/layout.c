/* SPDX-License-Identifier: Apache-2.0
 * Sizes and offsets of what crosses the plug-in ABI, as this compilation sees them. */
#include <stddef.h>

#include "attest/plugin.h"

#ifdef ATTEST_HAS_DLPACK
_Static_assert(EXPECT_DLPACK == 1, "dlpack/dlpack.h was found, and should not be");
#else
_Static_assert(EXPECT_DLPACK == 0, "dlpack/dlpack.h was not found");
#endif

extern const size_t LAYOUT[];
const size_t LAYOUT[] = {
    sizeof(DLDevice),
    offsetof(DLDevice, device_type),
    offsetof(DLDevice, device_id),
    sizeof(DLDataType),
    offsetof(DLDataType, code),
    offsetof(DLDataType, bits),
    offsetof(DLDataType, lanes),
    sizeof(DLTensor),
    offsetof(DLTensor, data),
    offsetof(DLTensor, device),
    offsetof(DLTensor, ndim),
    offsetof(DLTensor, dtype),
    offsetof(DLTensor, shape),
    offsetof(DLTensor, strides),
    offsetof(DLTensor, byte_offset),
    (size_t)kDLCPU,
    (size_t)kDLCUDA,
    (size_t)kDLROCM,
    (size_t)kDLInt,
    (size_t)kDLUInt,
    (size_t)kDLFloat,
    (size_t)kDLBfloat,
    sizeof(attest_context),
    sizeof(attest_attention),
    sizeof(attest_plugin),
    0, /* the end */
};
