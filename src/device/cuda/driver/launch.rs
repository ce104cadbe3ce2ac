//! Launches: what the driver is told of one is the same each time but for the arguments.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

use super::{Context, Error, Function, Result, check};
use crate::core::launch::Launch;
use cudarc::driver::sys::{self, CUresult};
use std::ffi::c_void;

/// The compute capability before the point.
const MAJOR: sys::CUdevice_attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;

/// A launch that lacks the values of its arguments alone. It is valid while the module of its function is.
pub struct Launchable {
    function: Function,
    /// Without stream and attributes.
    config: sys::CUlaunchConfig,
    attributes: Vec<sys::CUlaunchAttribute>,
    /// Where each argument begins, one behind the other.
    offsets: Vec<usize>,
    /// How long all of them are.
    bytes: usize,
    /// Room for their addresses, which each launch writes anew.
    pointers: Vec<*mut c_void>,
}

impl Context {
    /// Makes a launch of `function` ready whose arguments have these sizes.
    ///
    /// # Errors
    /// Where these are not the sizes of the parameters, as far as the driver can tell, and where an extent is too large.
    pub fn prepare(&self, function: &Function, launch: &Launch, sizes: &[usize]) -> Result<Launchable> {
        if function.parameter_sizes().is_some_and(|parameters| parameters != sizes) {
            return Err(Error(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
        let (mut offsets, mut bytes) = (Vec::with_capacity(sizes.len()), 0);
        for size in sizes {
            offsets.push(bytes);
            bytes += size;
        }
        let extent = |n: usize| u32::try_from(n).map_err(|_| Error(CUresult::CUDA_ERROR_INVALID_VALUE));
        let mut grid = launch.grid;
        if launch.cooperative {
            grid[0] = grid[0].min(self.blocks_at_once(function, launch)? / (grid[1] * grid[2]).max(1));
        }
        let [gx, gy, gz] = grid.map(extent);
        let [bx, by, bz] = launch.block.map(extent);
        let config = sys::CUlaunchConfig {
            gridDimX: gx?,
            gridDimY: gy?,
            gridDimZ: gz?,
            blockDimX: bx?,
            blockDimY: by?,
            blockDimZ: bz?,
            sharedMemBytes: extent(launch.shared_bytes)?,
            hStream: std::ptr::null_mut(),
            attrs: std::ptr::null_mut(),
            numAttrs: 0,
        };
        let pointers = Vec::with_capacity(sizes.len());
        let attributes = self.attributes(launch)?;
        Ok(Launchable { function: function.clone(), config, attributes, offsets, bytes, pointers })
    }

    /// Launches it on these arguments, one behind the other.
    ///
    /// # Errors
    /// Where the arguments are longer or shorter than it was prepared for, and what the driver said.
    pub fn enqueue(&self, launch: &mut Launchable, arguments: &[u8]) -> Result<()> {
        let Launchable { function, config, attributes, offsets, bytes, pointers } = launch;
        if arguments.len() != *bytes {
            return Err(Error(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
        pointers.clear();
        pointers.extend(offsets.iter().map(|&offset| arguments[offset..].as_ptr().cast_mut().cast::<c_void>()));
        let config = sys::CUlaunchConfig {
            hStream: self.stream.cu_stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
            ..*config
        };
        // SAFETY: `prepare` held the number and sizes of the arguments against the kernel's parameters (where the driver can
        // tell) and laid the offsets out by those sizes; the arguments are as long as all of them together, as held above, so
        // that each pointer has as many bytes behind it as its parameter. They live until the call has copied them.
        check(unsafe { sys::cuLaunchKernelEx(&config, function.function, pointers.as_mut_ptr(), std::ptr::null_mut()) })
    }

    /// Launches `function` once; the arguments are the bytes of each parameter.
    pub fn launch(&self, function: &Function, launch: &Launch, arguments: &[Vec<u8>]) -> Result<()> {
        let sizes: Vec<usize> = arguments.iter().map(Vec::len).collect();
        self.enqueue(&mut self.prepare(function, launch, &sizes)?, &arguments.concat())
    }

    /// Blocks of a launch that the GPU has room for at once.
    fn blocks_at_once(&self, function: &Function, launch: &Launch) -> Result<usize> {
        let units = self.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        let threads = launch.block.iter().product();
        Ok(function.blocks_at_once(threads, launch.shared_bytes)? * usize::try_from(units).unwrap_or(0))
    }

    fn attributes(&self, launch: &Launch) -> Result<Vec<sys::CUlaunchAttribute>> {
        let mut attributes = Vec::new();
        let mut add = |id, set: &dyn Fn(&mut sys::CUlaunchAttributeValue)| {
            // SAFETY: plain data; the member of the union that goes with the id is set below.
            let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
            attribute.id = id;
            set(&mut attribute.value);
            attributes.push(attribute);
        };
        if launch.cluster > 1 {
            let x = u32::try_from(launch.cluster).map_err(|_| Error(CUresult::CUDA_ERROR_INVALID_VALUE))?;
            let extents = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y: 1, z: 1 };
            add(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &|value| value.clusterDim = extents);
        }
        if launch.dependent && self.attribute(MAJOR) >= 9 {
            let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            add(id, &|value| value.programmaticStreamSerializationAllowed = 1);
        }
        if launch.cooperative {
            add(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &|value| value.cooperative = 1);
        }
        Ok(attributes)
    }
}
