//! Tensor maps as the driver encodes them.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

use super::driver::{Result, check, has};
use crate::core::dtype::DType;
use crate::core::tensor_map::{Fill, Swizzle};
use crate::device::argument::{MAP_BYTES, Tiled};
use cudarc::driver::sys;

/// Whether tensor maps can be had: `has_copies` is what the GPU says.
///
/// # Errors
/// Why not, and what to do.
pub fn available(has_copies: bool) -> std::result::Result<(), String> {
    if !has_copies {
        return Err("tensor maps need compute capability 9.0 or later".into());
    }
    if !has("cuTensorMapEncodeTiled") {
        return Err("this driver has no cuTensorMapEncodeTiled: update it to CUDA 12.0 or later".into());
    }
    Ok(())
}

/// Encodes a map; [`available`] was asked before.
pub fn encode(map: &Tiled) -> Result<[u8; MAP_BYTES]> {
    use sys::{CUtensorMapDataType as Type, CUtensorMapFloatOOBfill as Outside, CUtensorMapSwizzle as Mixed};
    let element = match map.dtype {
        DType::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::BF16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::I32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::I64 => Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
        DType::E4M3 | DType::E5M2 | DType::U8 | DType::I8 | DType::Bool => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    };
    let swizzle = match map.swizzle {
        Swizzle::None => Mixed::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::Bytes32 => Mixed::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::Bytes64 => Mixed::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::Bytes128 => Mixed::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let outside = match map.fill {
        Fill::Zeros => Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        Fill::Nan => Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    };
    // Rows need not start at a cache line: fetching 256 bytes cost a GEMM with such rows a fifth of its speed.
    let promotion = sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    let packed = sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
    let mut steps = vec![1u32; map.extents.len()];
    let mut encoded = sys::CUtensorMap { opaque: [0; MAP_BYTES / 8] };
    let rank = map.extents.len() as u32;
    let (address, extents, strides) = (map.address as *mut _, map.extents.as_ptr(), map.strides_bytes.as_ptr());
    let status = if let Some(im2col) = &map.im2col {
        steps[1..3].copy_from_slice(&im2col.stride.map(|step| step as u32));
        // SAFETY: every pointer is valid for the call, the arrays have as many elements as the rank says (a stride less,
        // two corners for the two dimensions between channels and images), and the tensor is only described.
        unsafe {
            sys::cuTensorMapEncodeIm2col(
                &mut encoded,
                element,
                rank,
                address,
                extents,
                strides,
                im2col.lower_corner.as_ptr(),
                im2col.upper_corner.as_ptr(),
                map.tile[0],
                map.tile[3],
                steps.as_ptr(),
                packed,
                swizzle,
                promotion,
                outside,
            )
        }
    } else {
        // SAFETY: as above, without corners.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut encoded,
                element,
                rank,
                address,
                extents,
                strides,
                map.tile.as_ptr(),
                steps.as_ptr(),
                packed,
                swizzle,
                promotion,
                outside,
            )
        }
    };
    check(status)?;
    let mut bytes = [0; MAP_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(encoded.opaque) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(bytes)
}
